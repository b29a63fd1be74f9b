"""The HTTP routes of one vLLM server, and what may go wrong with them.

A fault of the server is a `ServerFault`: no connection, no answer in time, a broken one, HTTP 5xx.
It may be gone the next time. One of HTTP 408, 429 or 503 is a `ServerBusy`: it goes if one waits.
Any other 4xx refuses the request itself, and is a `UserError` with the server's own words.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import numpy as np

from conductor_jax.errors import UserError

_CONNECT_SECONDS = 10.0
_GENERATE = "/inference/v1/generate"
_BUSY = (408, 429, 503)
_NEEDED = ("a server must be vLLM 0.32 or later, started with VLLM_SERVER_DEV_MODE=1 and "
           "--enable-scale-out")


class ServerFault(Exception):
  """What a server did wrong, and may do right the next time. One line that names the server."""


class ServerBusy(ServerFault):
  """The server asks to come again later."""


@dataclass(frozen=True)
class Generated:
  """What a server wrote.

  Attributes:
    tokens: int32[tokens].
    logprobs: float32[tokens].
    finish_reason: "stop" or "length".
    versions: the label of the weights that wrote each token.
  """

  tokens: np.ndarray
  logprobs: np.ndarray
  finish_reason: str
  versions: tuple[str, ...]


class VllmClient:
  """Asks one server.

  Args:
    session: of connections.
    url: of the server, without a path.
    model: the name that it serves its model under.
  """

  def __init__(self, session: aiohttp.ClientSession, url: str, model: str):
    self.url = url
    self._session, self._model = session, model

  async def ask(
      self, method: str, route: str, body: Any = None, *, timeout: float,
      query: Mapping[str, str] | None = None
  ) -> Any:
    """The JSON answer of a route, None for an empty one.

    Args:
      method: "GET" or "POST".
      route: its path.
      body: sent as JSON.
      timeout: seconds until the answer must be complete.
      query: the query's parameters.

    Raises:
      ServerFault: there is no good answer, or, a `ServerBusy`, not yet.
      UserError: the server refuses the request.
    """
    limits = aiohttp.ClientTimeout(total=timeout, sock_connect=_CONNECT_SECONDS)
    try:
      async with self._session.request(
          method, self.url + route, json=body, params=query, timeout=limits,
          allow_redirects=False) as response:
        payload = await response.read()
    except TimeoutError as fault:
      raise ServerFault(f"{self.url}{route} gave no answer within {timeout:g} s") from fault
    except (aiohttp.ClientError, OSError) as fault:
      reason = " ".join(str(fault).split()) or type(fault).__name__
      raise ServerFault(f"{self.url}{route} cannot be asked: {reason}") from fault
    if response.status >= 300:
      line = f"{self.url}{route} answered {response.status}: {_message(payload)}"
      if response.status in _BUSY:
        raise ServerBusy(line)
      if response.status >= 500:
        raise ServerFault(line)
      raise UserError(line + _remedy(response.status, route))
    try:
      return json.loads(payload) if payload else None
    except ValueError as fault:
      raise ServerFault(f"{self.url}{route} answered what is not JSON: {payload[:80]!r}") from fault

  async def check_model(self, timeout: float) -> None:
    """Raises:
      UserError: the server has no model under the name.
    """
    answer = await self.ask("GET", "/v1/models", timeout=timeout)
    try:
      names = [model["id"] for model in answer["data"]]
    except (TypeError, KeyError) as fault:
      raise UserError(f"{self.url}/v1/models lists no models: {_NEEDED}") from fault
    if self._model not in names:
      raise UserError(f"{self.url} serves {', '.join(names)}: start it with "
                      f"--served-model-name={self._model}")

  async def generate(
      self, prompt: Sequence[int], *, seed: int, temperature: float, max_tokens: int, eos: int,
      timeout: float
  ) -> Generated:
    """Writes one completion, which ends at `max_tokens` or with the token `eos`."""
    answer = await self._generate(prompt, timeout, {
        "n": 1, "seed": seed, "temperature": temperature, "max_tokens": max_tokens, "logprobs": 0,
        # The policy's own distribution, and no end but ours.
        "top_p": 1.0, "top_k": -1, "ignore_eos": True, "stop_token_ids": [eos],
        "detokenize": False})
    try:
      choice = answer["choices"][0]
      tokens = np.array(choice["token_ids"], np.int32)
      logprobs = np.array([each["logprob"] for each in choice["logprobs"]["content"]], np.float32)
      versions = tuple(
          span["version"] for span in choice["weight_versions"]
          for _ in range(span["start"], span["end"]))
      reason = choice["finish_reason"]
    except (TypeError, KeyError, IndexError, ValueError) as fault:
      raise ServerFault(f"{self.url}{_GENERATE} answered without {fault}: {_NEEDED}") from fault
    if reason not in ("stop", "length"):
      raise ServerFault(f"{self.url}{_GENERATE} ended a completion by {reason!r}")
    if not 0 < len(tokens) == len(logprobs) == len(versions) or not _sound(logprobs):
      raise ServerFault(
          f"{self.url}{_GENERATE} answered {len(tokens)} tokens, {len(logprobs)} log-probabilities "
          f"from {logprobs.min(initial=0):g} and {len(versions)} weight versions")
    return Generated(tokens, logprobs, reason, versions)

  async def prompt_logprobs(self, tokens: Sequence[int], timeout: float) -> np.ndarray:
    """float32[tokens - 1], the log-probability of each token after the first at temperature 1."""
    answer = await self._generate(
        tokens, timeout, {"temperature": 0.0, "max_tokens": 1, "prompt_logprobs": 0})
    try:
      entries = answer["prompt_logprobs"][1:]
      logprobs = np.array([
          entry[str(token)]["logprob"] for token, entry in zip(tokens[1:], entries, strict=True)],
          np.float32)
    except (TypeError, KeyError, ValueError) as fault:
      raise ServerFault(
          f"{self.url}{_GENERATE} answered without {fault} in prompt_logprobs") from fault
    return logprobs

  async def _generate(self, tokens, timeout, sampling_params):
    return await self.ask("POST", _GENERATE, {
        "model": self._model, "token_ids": list(tokens), "sampling_params": sampling_params,
    }, timeout=timeout)


def _sound(logprobs: np.ndarray) -> bool:
  # vLLM writes -9999 for what is no number.
  return bool(np.all((logprobs <= 0) & (logprobs > -9999)))


def _message(payload: bytes) -> str:
  """The server's own words, in one line."""
  text = payload.decode(errors="replace")
  try:
    content = json.loads(text)
  except ValueError:
    content = text
  for key in ("error", "message", "detail"):
    if isinstance(content, dict) and key in content:
      content = content[key]
  return " ".join(str(content).split())[:300] or "nothing"


def _remedy(status: int, route: str) -> str:
  """What to do where the server was started otherwise than it must be."""
  unknown_route = status == 404 and route != _GENERATE
  return f": {_NEEDED}" if unknown_route or status in (403, 405) else ""
