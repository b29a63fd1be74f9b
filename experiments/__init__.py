import os

# The tokenizer library advises everyone who has no torch; nobody here needs it.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
