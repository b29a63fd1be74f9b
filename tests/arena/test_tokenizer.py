"""The arena's tokenizer on the chats it is made for, and on any other text."""

import numpy as np
import pytest

from conductor_jax.arena.plans import example_plan
from conductor_jax.arena.tokenizer import train_tokenizer
from conductor_jax.arena.world import World
from conductor_jax.workflows.lists import ListFormat
from conductor_jax.workflows.prompts import PromptTemplate

VOCAB = 640


@pytest.fixture(scope="module")
def chats():
  generator = np.random.default_rng(0)
  template = PromptTemplate(ListFormat())
  return [
      (template.messages(task.question, range(7)),
       template.format.written(example_plan(task, range(7), generator)))
      for task in World(0).tasks("train", 240)]


@pytest.fixture(scope="module")
def tokenizer(chats):
  texts = [message["content"] for messages, _ in chats for message in messages]
  return train_tokenizer([*texts, *(plan for _, plan in chats)], VOCAB)


def round_trip(tokenizer, text):
  return tokenizer.decode(tokenizer.encode(text, add_special_tokens=False))


@pytest.mark.parametrize("text", [
    "", " ", "a", "  two  spaces , before commas .", "model_id = [3, 5]\n\n\taccess_list = []",
    "What's 1234567890 + 0.5? `[\"all\"]`", "Ünïcode — 日本語 🙂", "don't , isn 't", "\r\nline"])
def test_any_text_makes_the_round_trip(tokenizer, text):
  assert round_trip(tokenizer, text) == text


def test_chats_and_plans_make_the_round_trip(tokenizer, chats):
  for messages, plan in chats:
    assert round_trip(tokenizer, plan) == plan
    for message in messages:
      assert round_trip(tokenizer, message["content"]) == message["content"]


def test_every_token_with_a_digit_is_one_digit(tokenizer):
  texts = [tokenizer.decode([token]) for token in range(len(tokenizer))]
  assert sorted(text for text in texts if any(c.isdigit() for c in text)) == list("0123456789")
  ids = tokenizer.encode("[12, 3]", add_special_tokens=False)
  assert [tokenizer.decode([token]) for token in ids if tokenizer.decode([token]).isdigit()] == [
      "1", "2", "3"]


def test_digits_stay_single_however_frequent_a_number_is():
  tokenizer = train_tokenizer(["2024 12 plans of 12 steps"] * 100, 300)
  texts = [tokenizer.decode([token]) for token in range(len(tokenizer))]
  assert " plans of " in texts
  assert [tokenizer.decode([token]) for token in tokenizer.encode("2024")] == list("2024")


def test_a_token_ends_at_a_quote_and_at_a_closing_bracket(tokenizer):
  texts = [tokenizer.decode([token]) for token in range(2, len(tokenizer))]
  for text in texts:
    if {'"', "]"} & set(text):
      assert not set(text) - set('"], \n')
  assert any("\n" in text and text.strip() for text in texts)


def test_the_vocabulary_has_the_size_that_was_asked_for(tokenizer):
  assert len(tokenizer) == tokenizer.vocab_size == VOCAB


def test_the_end_of_sequence_token_is_the_end_of_a_turn_and_the_padding(tokenizer):
  assert tokenizer.eos_token == tokenizer.pad_token == "<|im_end|>"
  assert tokenizer.eos_token_id == tokenizer.pad_token_id
  assert tokenizer.encode("<|im_end|>", add_special_tokens=False) == [tokenizer.eos_token_id]
  assert tokenizer.decode([tokenizer.eos_token_id], skip_special_tokens=True) == ""


def test_the_chat_template_is_chatml(tokenizer):
  messages = [
      {"role": "system", "content": "Plan."},
      {"role": "user", "content": "Question: what?\n"},
      {"role": "assistant", "content": "This."}]
  text = ("<|im_start|>system\nPlan.<|im_end|>\n"
          "<|im_start|>user\nQuestion: what?\n<|im_end|>\n"
          "<|im_start|>assistant\nThis.<|im_end|>\n")
  assert tokenizer.apply_chat_template(messages, tokenize=False) == text
  assert tokenizer.apply_chat_template(
      messages[:2], tokenize=False, add_generation_prompt=True) == (
          "<|im_start|>system\nPlan.<|im_end|>\n"
          "<|im_start|>user\nQuestion: what?\n<|im_end|>\n<|im_start|>assistant\n")


def test_a_tokenized_chat_has_one_special_token_at_each_end_of_a_turn(tokenizer, chats):
  messages, _ = chats[0]
  ids = tokenizer.apply_chat_template(
      messages, add_generation_prompt=True, tokenize=True, return_dict=False)
  start = tokenizer.convert_tokens_to_ids("<|im_start|>")
  assert ids[0] == start
  assert ids.count(start) == 3 and ids.count(tokenizer.eos_token_id) == 2
  assert tokenizer.decode(ids) == tokenizer.apply_chat_template(
      messages, add_generation_prompt=True, tokenize=False)


def test_training_twice_gives_the_same_tokens(tokenizer, chats):
  texts = [message["content"] for messages, _ in chats for message in messages]
  again = train_tokenizer([*texts, *(plan for _, plan in chats)], VOCAB)
  assert again.get_vocab() == tokenizer.get_vocab()
