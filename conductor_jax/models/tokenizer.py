"""Tokenizers of checkpoints, with their chat template."""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from conductor_jax.errors import UserError
from conductor_jax.models.gguf import GGUF

# Classes without a way of their own to split text.
_AS_THE_FILE_SAYS = ("TokenizersBackend", "PreTrainedTokenizerFast")

# ggml's token type of special tokens such as <|im_end|>.
_CONTROL = 3


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
  """The tokenizer in a Hugging Face folder, as its files have it.

  A chat's end is its `eos_token`, such as Qwen2.5-Instruct's <|im_end|>.

  Raises:
    UserError: there is none that can be read, or it lacks a chat template or an end-of-sequence
      token.
  """
  path = folder / "tokenizer_config.json"
  if not path.exists():
    raise UserError(f"{folder} has no {path.name}: copy the tokenizer's files beside the weights")
  try:
    kind = json.loads(path.read_text()).get("tokenizer_class")
    # Beside a config.json of Qwen2, transformers 5 would make every tokenizer one of Qwen2's, which
    # splits text otherwise than the file says.
    reader = PreTrainedTokenizerFast if kind in _AS_THE_FILE_SAYS else AutoTokenizer
    tokenizer = reader.from_pretrained(folder, local_files_only=True)
  # A damaged file makes each part of the reader raise something of its own.
  except Exception as fault:
    reason = " ".join(str(fault).split())[:200]
    raise UserError(
        f"the tokenizer in {folder} cannot be read ({reason}): fetch its files again") from fault
  missing = [name for name in ("chat_template", "eos_token")
             if getattr(tokenizer, name) is None]
  if missing:
    raise UserError(f"the tokenizer in {folder} has no {' and no '.join(missing)}: take that of an "
                    "instruction-tuned model")
  return tokenizer


def gguf_tokenizer(file: GGUF) -> PreTrainedTokenizerFast:
  """The tokenizer that a GGUF file carries: byte-level BPE as SmolLM2's, every digit on its own.

  Raises:
    UserError: the file has another kind.
  """
  values = {key.removeprefix("tokenizer.ggml."): value for key, value in file.metadata.items()}
  kind = values.get("model"), values.get("pre")
  if kind != ("gpt2", "smollm"):
    raise UserError(f"{file.path} has a tokenizer of kind {kind}: only ('gpt2', 'smollm') is "
                    "implemented, take the tokenizer from a Hugging Face folder")
  tokens = values["tokens"]
  merges = [tuple(merge.split(" ")) for merge in values["merges"]]
  tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
  tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
      pre_tokenizers.Digits(individual_digits=True),
      pre_tokenizers.ByteLevel(add_prefix_space=False)])
  tokenizer.decoder = decoders.ByteLevel()
  tokenizer.add_special_tokens([
      AddedToken(token, special=True, normalized=False)
      for token, kind in zip(tokens, values["token_type"], strict=True) if kind == _CONTROL])
  special = {
      f"{name}_token": tokens[values[f"{key}_token_id"]] for name, key in
      (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))}
  return PreTrainedTokenizerFast(
      tokenizer_object=tokenizer, chat_template=values["tokenizer.chat_template"],
      model_max_length=file.metadata["llama.context_length"], **special)
