"""The conductor's prompts whose text and tokens are kept in golden/.

`python -m tests.workflows.golden_prompts` prints a hash of each text and of its tokens under
SmolLM2's tokenizer, and with `--write` it writes them down.
"""

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from conductor_jax.models.gguf import read_gguf, smollm2_path
from conductor_jax.models.tokenizer import gguf_tokenizer
from conductor_jax.workflows.few_shot import OUTSIDE
from conductor_jax.workflows.lists import ListFormat
from conductor_jax.workflows.prompts import PromptTemplate, Shot

FOLDER = Path(__file__).parent / "golden"
QUESTION = "How many edges does a cube have?"
ANSWER = "A cube has 6 faces of 4 edges each, and two faces share an edge: <answer>12</answer>"
PREFILL = "Let me plan this step by step.\n"
MODELS = range(7)
# By the file's name: the format, and the answer of the round before.
CASES = {
    f"{access}{'' if subtasks else '-no-subtasks'}{'' if previous is None else '-later'}":
        (ListFormat(access=access, subtasks=subtasks), previous)
    for access in ("binary", "positions", "none") for subtasks in (True, False)
    for previous in (None, ANSWER)}


def template(format: ListFormat, examples: int = 4, prefill: str = PREFILL) -> PromptTemplate:
  """A template with the project's own examples."""
  return PromptTemplate(format, tuple(
      Shot(example.question, example.models, format.written(example))
      for example in OUTSIDE[:examples]), prefill)


def whole_text(name: str) -> str:
  """All that a conductor reads in a case, the prefill included."""
  format, previous = CASES[name]
  messages = template(format).messages(QUESTION, MODELS, previous=previous)
  return "".join(f"[{message['role']}]\n{message['content']}\n" for message in messages) + (
      f"[assistant]\n{PREFILL}")


def fingerprint(tokens: Sequence[int]) -> dict[str, int | str]:
  """Tells token ids from others: how many, and the SHA-256 of them as int32."""
  return {"tokens": len(tokens),
          "sha256": hashlib.sha256(np.array(tokens, "<i4").tobytes()).hexdigest()}


def fingerprints() -> dict[str, dict[str, int | str]]:
  """Of the tokens of every case under SmolLM2's tokenizer."""
  tokenizer = gguf_tokenizer(read_gguf(smollm2_path()))
  return {
      name: fingerprint(template(format).tokens(tokenizer, QUESTION, MODELS, previous=previous))
      for name, (format, previous) in CASES.items()}


def main(write: bool) -> None:
  texts = {name: whole_text(name).encode() for name in CASES}
  tokens = fingerprints()
  if write:
    for name, text in texts.items():
      (FOLDER / f"{name}.txt").write_bytes(text)
    (FOLDER / "smollm2.json").write_text(json.dumps(tokens, indent=2) + "\n")
  hashes = {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}
  print(json.dumps({"texts": hashes, "smollm2": tokens}))


if __name__ == "__main__":
  main(write="--write" in sys.argv[1:])
