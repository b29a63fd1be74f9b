"""Trains a language model to conduct other language models."""
