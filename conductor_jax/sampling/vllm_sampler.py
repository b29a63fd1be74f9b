"""Samples from vLLM servers, which are given the trainer's weights as it makes them."""

import asyncio
from collections.abc import Callable, Sequence

import aiohttp
import numpy as np

from conductor_jax.errors import UserError
from conductor_jax.gather import gather_all
from conductor_jax.sampling.endpoint import Endpoint
from conductor_jax.sampling.sampler import Completion
from conductor_jax.sampling.vllm_client import ServerFault
from conductor_jax.sampling.vllm_server import VllmServer
from conductor_jax.sampling.weight_folder import WeightFolder, Weights

# How often one completion is asked for.
_ATTEMPTS = 6
# Seconds that a connection is kept unused: vLLM closes it after 5, with a request on its way to it.
_KEEP_ALIVE = 2.0
# Seconds before it is asked for again; doubled every time.
_BACKOFF = 0.1


class VllmSampler:
  """Samples from servers of ours, which it starts, and of others; an async context manager.

  It may be entered and left by different tasks of one event loop. A server's fault costs the
  completions that it was writing: these alone are asked for again, of another server or of the same
  one when it is back. Of others' servers some may be down as long as one is not; they are taken in
  again, with the current weights, when they answer.

  Args:
    weights: the folder that weights are staged in; removed at the end.
    servers: of ours.
    urls: of others'.
    model: the name that all serve their model under.
    max_tokens: completion limit.
    eos: the end-of-sequence token.
    request_timeout: seconds for one completion.
    sync_timeout: seconds for each other answer of a server; the slowest is to a load of weights.
    say: takes a line about what became of a server.
    merge: staged parameters → those of the model without adapters; None where there are none.
    share_device: whether the servers sleep while nothing is sampled, for they share the trainer's
      device.
    look_again: seconds from one look at servers that are left out to the next.
  """

  def __init__(
      self, weights: WeightFolder, *, servers: Sequence[VllmServer] = (), urls: Sequence[str] = (),
      model: str = "conductor", max_tokens: int, eos: int, request_timeout: float,
      sync_timeout: float, say: Callable[[str], None],
      merge: Callable[[dict], dict] | None = None, share_device: bool = False,
      look_again: float = 10.0):
    self._weights, self._servers, self._urls = weights, tuple(servers), tuple(urls)
    self._model, self._max_tokens, self._eos = model, max_tokens, eos
    self._request_timeout, self._sync_timeout = request_timeout, sync_timeout
    self._say, self._look_again = say, look_again
    self._merge, self._share_device = merge, share_device
    self._staged: Weights | None = None
    self._endpoints: list[Endpoint] = []

  async def __aenter__(self) -> "VllmSampler":
    # The sampler itself limits nothing: servers queue what is too much at once.
    self._session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE),
        cookie_jar=aiohttp.DummyCookieJar())
    self._news = asyncio.Event()
    shared = dict(
        probe=self._weights.probe, dtype=self._weights.dtype, model=self._model,
        sync_timeout=self._sync_timeout, changed=self._change, say=self._say)
    self._endpoints = [
        *(Endpoint(self._session, server=server, **shared) for server in self._servers),
        *(Endpoint(self._session, url=url, **shared) for url in self._urls)]
    self._keeper = asyncio.create_task(self._take_in_again())
    return self

  async def __aexit__(self, *exception) -> None:
    await self.close()

  async def close(self) -> None:
    """Ends the servers that are ours, and removes the weights."""
    self._keeper.cancel()
    await asyncio.wait([self._keeper])
    try:
      await gather_all(endpoint.close() for endpoint in self._endpoints)
    finally:
      await self._session.close()
      await asyncio.to_thread(self._weights.close)

  def stage(self, params: dict, version: int) -> None:
    """See `Sampler.stage`.

    Raises:
      UserError: there is no room for them.
    """
    self._staged = self._weights.stage(
        params if self._merge is None else self._merge(params), version)

  async def load(self) -> None:
    """See `Sampler.load`; the first time it starts the servers that are ours.

    Raises:
      UserError: no server has the weights now, or one that is used wrongly says so.
    """
    weights = self._staged
    first = self._endpoints[0].target is None
    asked = [endpoint for endpoint in self._endpoints if endpoint.fault is None]
    for endpoint in self._endpoints:
      endpoint.target = weights
    await gather_all(endpoint.load() for endpoint in asked)
    for endpoint in asked:
      if first and isinstance(endpoint.fault, UserError):
        raise endpoint.fault
      if endpoint.fault is not None:
        self._say(f"{endpoint.fault}: it is left out")
    self._refuse_without_servers()
    await asyncio.to_thread(self._weights.remove_before, weights)

  async def rest(self) -> None:
    """See `Sampler.rest`; servers that share the trainer's device give their memory back."""
    if self._share_device:
      await gather_all(endpoint.sleep() for endpoint in self._endpoints)

  async def sample(
      self, prompt: Sequence[int], seeds: np.ndarray, temperature: float) -> list[Completion]:
    """See `Sampler.sample`.

    Raises:
      UserError: the servers refuse the request, fail it again and again, or none is left.
    """
    prompt = [int(token) for token in prompt]
    home = await self._choose()

    async def complete(seed: int) -> Completion:
      # All of a prompt's completions go to one server, which computes the prompt once.
      nonlocal home
      for attempt in range(_ATTEMPTS):
        if not home.ready:
          home = await self._choose()
        try:
          return await home.generate(
              prompt, seed=seed, temperature=float(temperature), max_tokens=self._max_tokens,
              eos=self._eos, timeout=self._request_timeout)
        except ServerFault as fault:
          last = fault
          await asyncio.sleep(_BACKOFF * 2**attempt)
      raise UserError(f"a completion failed {_ATTEMPTS} times, at last because {last}: see the "
                      "server's log, then run the same command to go on")

    with home.expecting(len(seeds)):
      return await gather_all(complete(int(seed)) for seed in seeds)

  async def _choose(self) -> Endpoint:
    """The ready server with the least to do; waits for one while there may be one."""
    while True:
      ready = [endpoint for endpoint in self._endpoints if endpoint.ready]
      if ready:
        return min(ready, key=lambda endpoint: endpoint.work)
      self._refuse_without_servers()
      await self._news.wait()

  def _refuse_without_servers(self) -> None:
    faults = [endpoint.fault for endpoint in self._endpoints]
    if all(faults):
      raise UserError(
          f"no vLLM server is left to sample from ({'; '.join(map(str, faults))}): start one, then "
          "run the same command to go on from the last checkpoint")

  def _change(self) -> None:
    self._news.set()
    self._news = asyncio.Event()

  async def _take_in_again(self) -> None:
    """Looks after others' servers that are left out."""
    while True:
      await asyncio.sleep(self._look_again)
      for endpoint in self._endpoints:
        if endpoint.fault is not None and not endpoint.ours and await endpoint.answers():
          await endpoint.load()
          if endpoint.ready:
            self._say(f"{endpoint.url} is back")
