"""Tokenizers of folders and of a GGUF file."""

import json
from pathlib import Path

import pytest

from conductor_jax.arena.tokenizer import train_tokenizer
from conductor_jax.errors import UserError
from conductor_jax.models.gguf import GGUF, read_gguf
from conductor_jax.models.hf_config import write_config
from conductor_jax.models.shapes import SHAPES
from conductor_jax.models.tokenizer import gguf_tokenizer, load_tokenizer

GOLDEN = json.loads((Path(__file__).parent / "goldens" / "smollm2.json").read_text())
CHAT = [{"role": "user", "content": "Add 12 and 30."}]


@pytest.fixture(scope="module")
def saved():
  """A tokenizer with a chat template, to be saved."""
  return train_tokenizer(["Add 12 and 30.", "the quick brown fox"], 300)


def test_a_folders_tokenizer_comes_with_its_template_and_its_end_of_sequence(tmp_path, saved):
  saved.save_pretrained(tmp_path)
  loaded = load_tokenizer(tmp_path)
  assert loaded.get_vocab() == saved.get_vocab()
  assert loaded.eos_token == "<|im_end|>"
  assert loaded.eos_token_id == saved.eos_token_id
  text = loaded.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
  assert text == "<|im_start|>user\nAdd 12 and 30.<|im_end|>\n<|im_start|>assistant\n"
  assert loaded(text).input_ids == saved(text).input_ids
  assert loaded.decode(loaded(text).input_ids) == text


def test_a_qwen2_tokenizer_is_read_by_its_own_class(tmp_path, saved):
  saved.save_pretrained(tmp_path)
  path = tmp_path / "tokenizer_config.json"
  path.write_text(json.dumps(json.loads(path.read_text()) | {"tokenizer_class": "Qwen2Tokenizer"}))
  assert type(load_tokenizer(tmp_path)).__name__ == "Qwen2Tokenizer"


def test_a_folder_without_a_tokenizer_is_named(tmp_path):
  with pytest.raises(UserError, match=f"{tmp_path} has no tokenizer_config.json"):
    load_tokenizer(tmp_path)


def test_a_damaged_tokenizer_is_named(tmp_path, saved):
  saved.save_pretrained(tmp_path)
  (tmp_path / "tokenizer.json").write_text('{"model":')
  with pytest.raises(UserError, match=f"the tokenizer in {tmp_path} cannot be read"):
    load_tokenizer(tmp_path)


def test_a_tokenizer_without_a_chat_template_is_refused(tmp_path, saved):
  saved.save_pretrained(tmp_path)
  (tmp_path / "chat_template.jinja").unlink()
  with pytest.raises(UserError, match="has no chat_template: take that of an instruction-tuned"):
    load_tokenizer(tmp_path)


def test_another_kind_of_tokenizer_in_a_gguf_file_is_refused(tmp_path):
  file = GGUF(tmp_path / "x.gguf", {"tokenizer.ggml.model": "llama"}, {})
  with pytest.raises(UserError, match=r"tokenizer of kind \('llama', None\)"):
    gguf_tokenizer(file)


@pytest.fixture(scope="module")
def smollm2(smollm2_file):
  return gguf_tokenizer(read_gguf(smollm2_file))


@pytest.mark.parametrize("text", GOLDEN["texts"])
def test_smollm2_splits_a_text_as_llama_cpp_does_and_puts_it_together_again(smollm2, text):
  tokens = smollm2(text).input_ids
  assert tokens == GOLDEN["texts"][text]
  assert smollm2.decode(tokens) == text


def test_smollm2_has_transformers_chat_template_and_special_tokens(smollm2):
  text = smollm2.apply_chat_template(
      GOLDEN["messages"], tokenize=False, add_generation_prompt=True)
  assert text == GOLDEN["text"]
  assert smollm2(text).input_ids == GOLDEN["prompt_tokens"]
  assert smollm2.decode(GOLDEN["completion_tokens"]) == GOLDEN["completion"]
  assert (smollm2.eos_token, smollm2.eos_token_id) == ("<|im_end|>", 2)
  assert (smollm2.bos_token, smollm2.pad_token, smollm2.unk_token) == (
      "<|im_start|>", "<|im_end|>", "<|endoftext|>")
  assert len(smollm2) == 49_152
  assert smollm2.model_max_length == 8_192


def test_smollm2_saved_beside_a_qwen2_model_still_splits_text_its_own_way(tmp_path, smollm2):
  smollm2.save_pretrained(tmp_path)
  write_config(tmp_path / "config.json", SHAPES["smollm2-135m"], "float32")
  loaded = load_tokenizer(tmp_path)
  for text, tokens in GOLDEN["texts"].items():
    assert loaded(text).input_ids == tokens
  assert loaded.chat_template == smollm2.chat_template
