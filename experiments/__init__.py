import os

# The tokenizer library advises everyone who has no torch; nobody here needs it.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
# The share of a GPU's memory that JAX takes; by itself it would take three quarters.
os.environ.setdefault("XLA_CLIENT_MEM_FRACTION", "0.95")
