"""Requests, pauses, weight versions and the prefix cache of the stand-in server."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from vllm.numpy_qwen2 import Qwen2, log_softmax

# Tokens whose keys and values are cached together.
BLOCK = 4


class RequestError(Exception):
  """A request that the server refuses, with the JSON error's fields."""

  def __init__(self, message: str, status: int = 400, kind: str = "BadRequestError", param=None):
    super().__init__(message)
    self.status = status
    self.content = {
        "error": {"message": message, "type": kind, "param": param, "code": status}}


@dataclass
class Sequence:
  """One completion in the making; `content` has an entry of the answer for each token."""

  prompt: list[int]
  tokens: list[int] = field(default_factory=list)
  content: list[dict] = field(default_factory=list)
  versions: list[str] = field(default_factory=list)
  prompt_logprobs: list | None = None
  finish_reason: str | None = None
  stop_reason: int | None = None
  # Keys and values; None when they must be computed from the start.
  cache: list | None = None


class Engine:
  """Decodes its sequences in turns, a token each."""

  def __init__(self, folder: Path, max_model_len: int, logprobs_mode: str, token_seconds: float):
    self.model = Qwen2(folder)
    self.max_model_len = max_model_len
    self.version = "default"
    self.paused = False
    self.asleep: set[str] = set()
    self._processed = logprobs_mode.startswith("processed")
    self._token_seconds = token_seconds
    # While the first is clear new requests wait, while the second is those that run.
    self._admitting, self._stepping = asyncio.Event(), asyncio.Event()
    self.resume()
    self._running: list[Sequence] = []
    # Blocks of the prompts seen: keys and values of a whole number of blocks.
    self._prefixes: dict[tuple[int, ...], list] = {}

  async def generate(self, prompt: list[int], params: dict) -> list[Sequence]:
    """The `n` completions of a prompt. Their seeds are seed, seed + 1, ..."""
    if any(token >= self.model.vocab_size for token in prompt):
      raise RequestError(f"Token id {max(prompt)} is out of vocabulary")
    if len(prompt) > self.max_model_len:
      raise RequestError(
          f"The decoder prompt (length {len(prompt)}) is longer than the maximum model length of "
          f"{self.max_model_len}. Make sure that `max_model_len` is no smaller than the number of "
          "text tokens.")
    for name, minimum in (("temperature", 0), ("max_tokens", 1), ("n", 1)):
      value = params.get(name)
      if value is not None and value < minimum:
        raise RequestError(f"{name} must be at least {minimum}, got {value}.", param=name)
    await self._admitting.wait()
    seed = params.get("seed")
    entropy = np.random.SeedSequence().entropy if seed is None else seed
    return await asyncio.gather(*(
        self._complete(prompt, params, entropy + index) for index in range(params.get("n") or 1)))

  async def _complete(self, prompt, params, seed):
    sequence = Sequence(list(prompt))
    limit = params.get("max_tokens") or self.max_model_len
    limit = min(limit, self.max_model_len - len(prompt))
    self._running.append(sequence)
    try:
      while sequence.finish_reason is None:
        await asyncio.sleep(self._token_seconds)
        await self._stepping.wait()
        if sequence.finish_reason is None:
          self._step(sequence, params, seed, limit)
    finally:
      self._running.remove(sequence)
    return sequence

  def _step(self, sequence, params, seed, limit):
    logits = self._forward(sequence, params)
    temperature = params.get("temperature", 1.0)
    temperature = 1.0 if temperature is None else temperature
    # The log-probabilities of greedy choices are those of temperature 1.
    logprobs = log_softmax(logits / (temperature or 1))
    if temperature:
      noise = np.random.default_rng([seed, len(sequence.tokens)]).gumbel(size=len(logits))
      token = int(np.argmax(logprobs + noise))
    else:
      token = int(np.argmax(logprobs))
    reported = logprobs if self._processed else log_softmax(logits)
    sequence.tokens.append(token)
    sequence.versions.append(self.version)
    sequence.content.append(_entry(reported, token, params.get("logprobs") or 0))
    if token in self.model.eos and not params.get("ignore_eos"):
      sequence.finish_reason = "stop"
    elif token in (params.get("stop_token_ids") or []):
      sequence.finish_reason, sequence.stop_reason = "stop", token
    elif len(sequence.tokens) >= limit:
      sequence.finish_reason = "length"

  def _forward(self, sequence, params):
    """float32[vocab], logits of the next token."""
    if sequence.cache is not None:
      logits, sequence.cache = self.model.forward(sequence.tokens[-1:], sequence.cache)
      return logits[-1]
    tokens = sequence.prompt + sequence.tokens
    wanted = params.get("prompt_logprobs")
    if wanted is not None and not sequence.tokens:
      logits, sequence.cache = self.model.forward(tokens, None)
      # They are of temperature 1, whatever the request's is.
      logprobs = log_softmax(logits)
      sequence.prompt_logprobs = [None] + [
          {str(entry["token_id"]): {
              "logprob": entry["logprob"], "rank": entry["rank"], "decoded_token": None}
           for entry in _entry(logprobs[i], tokens[i + 1], wanted)["top_logprobs"]}
          for i in range(len(tokens) - 1)]
    else:
      # The last token is always computed: its logits are needed.
      known = (len(tokens) - 1) // BLOCK * BLOCK
      while known and tuple(tokens[:known]) not in self._prefixes:
        known -= BLOCK
      past = self._prefixes[tuple(tokens[:known])] if known else None
      logits, sequence.cache = self.model.forward(tokens[known:], past)
    for end in range(BLOCK, len(tokens) + 1, BLOCK):
      self._prefixes.setdefault(
          tuple(tokens[:end]), [(keys[:end], values[:end]) for keys, values in sequence.cache])
    return logits[-1]

  async def pause(self, mode: str) -> None:
    """Lets nothing new in; what runs is ended ("abort"), finished ("wait") or frozen ("keep")."""
    self.paused = True
    self._admitting.clear()
    if mode == "keep":
      self._stepping.clear()
    if mode == "abort":
      self._abort()
    while mode == "wait" and self._running:
      await asyncio.sleep(0.002)

  def resume(self) -> None:
    self.paused = False
    self._admitting.set()
    self._stepping.set()

  def _abort(self):
    for sequence in self._running:
      sequence.finish_reason = "abort"

  def sleep(self, level: int) -> None:
    """Pauses; levels 1 and 2 give the memory back, and at level 2 the weights are lost."""
    self.paused = True
    self._admitting.clear()
    self._abort()
    if level >= 1:
      self.asleep = {"weights", "kv_cache"}
      self._prefixes.clear()
    if level == 2:
      self.model.forget()

  def wake_up(self, tags: list[str] | None) -> bool:
    self.asleep -= set(tags or self.asleep)
    if not self.asleep:
      self.resume()
    return not self.asleep

  def reload(self, folder: Path) -> None:
    if "weights" in self.asleep:
      raise ValueError("the weights are asleep")
    self.model.load(folder)

  def reset_prefix_cache(self, running_too: bool) -> bool:
    """Forgets keys and values; false while a running sequence still holds some."""
    if running_too:
      for sequence in self._running:
        sequence.cache = None
    elif any(sequence.cache is not None for sequence in self._running):
      return False
    self._prefixes.clear()
    return True


def _entry(logprobs, token, count):
  """A token with its log-probability, and the `count` most likely beside it, its own first."""
  likely = [int(i) for i in np.argsort(-logprobs)[:count]]
  tops = [
      {"token_id": i, "logprob": max(float(logprobs[i]), -9999.0),
       "rank": int(np.sum(logprobs > logprobs[i])) + 1}
      for i in [token, *(i for i in likely if i != token)]]
  return {**tops[0], "top_logprobs": tops[:max(count, 1)]}
