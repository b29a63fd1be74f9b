"""One vLLM server of a sampler: which weights it has, and whether it may be asked."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import aiohttp
import anyio
import numpy as np

from conductor_jax.errors import UserError
from conductor_jax.sampling.probe import Answers, Probe
from conductor_jax.sampling.sampler import Completion
from conductor_jax.sampling.vllm_client import Generated, ServerBusy, ServerFault, VllmClient
from conductor_jax.sampling.vllm_server import VllmServer
from conductor_jax.sampling.weight_folder import Weights
from conductor_jax.sampling.weight_sync import confirm, label, sync

# Seconds for the last word to a server that is given up.
_RESUME_SECONDS = 10.0
# Seconds before a busy server is asked again; doubled every time.
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0


class Endpoint:
  """A server, of ours or somebody else's.

  It is asked only while it is `ready`: when it has been seen to have the weights it should. One of
  ours that cannot be brought there is started again; another's is tried once more, and then left
  out, but not paused. What was written with weights that are not confirmed is thrown away.

  Args:
    session: of connections.
    probe: for confirmation.
    dtype: of the server's model.
    model: the name that it serves its model under.
    server: of ours; None where `url` is somebody else's.
    url: without a path.
    sync_timeout: seconds for each answer but a completion.
    changed: told whenever `ready` or `fault` has changed.
    say: takes a line about what became of the server.

  Attributes:
    target: the weights that it should have.
    ready: whether it may be asked.
    fault: why it is left out, None while it is not.
    ours: whether its process is.
  """

  def __init__(
      self, session: aiohttp.ClientSession, *, probe: Probe, dtype: str, model: str,
      server: VllmServer | None = None, url: str = "", sync_timeout: float,
      changed: Callable[[], None], say: Callable[[str], None]):
    self.target: Weights | None = None
    self.ready, self.fault = False, None
    self.ours = server is not None
    self._session, self._probe, self._model = session, probe, model
    self._server, self._url = server, url.rstrip("/")
    self._timeout, self._changed, self._say = sync_timeout, changed, say
    self._answers = Answers(dtype, probe.context)
    self._loaded: Weights | None = None
    # Every version that it was seen to have, by its name.
    self._confirmed: dict[str, int] = {}
    self._asleep = False
    # Counts how often it was brought somewhere.
    self._turn = 0
    self._expected = 0
    self._requests: set[anyio.CancelScope] = set()
    self._tasks: set[asyncio.Task] = set()
    self._lock = asyncio.Lock()
    self._settled = asyncio.Event()

  @property
  def url(self) -> str:
    """Where the server is, or was last."""
    if self._server is not None and self._server.url:
      self._url = self._server.url
    return self._url

  @property
  def work(self) -> int:
    """How much it has to do, in completions; they count twice while they are being written."""
    return self._expected + len(self._requests)

  @contextlib.contextmanager
  def expecting(self, completions: int) -> Iterator[None]:
    """Counts the completions of a group that is on its way to it."""
    self._expected += completions
    try:
      yield
    finally:
      self._expected -= completions

  async def generate(self, prompt: Sequence[int], **options: Any) -> Completion:
    """A completion.

    Args:
      prompt: token ids.
      options: those of `VllmClient.generate`.

    Raises:
      ServerFault: there is none. The server has been mended since, or is left out.
      UserError: the server refuses the request.
    """
    turn = self._turn
    try:
      return await self._generate(prompt, options)
    except ServerFault:
      await self._in_own_task(self._mend(turn))
      raise

  async def load(self) -> None:
    """Brings the server to its target. It is `ready` afterwards, or there is a `fault`."""
    await self._in_own_task(self._load())

  async def sleep(self) -> None:
    """Has the server give its memory back until the next `load`; what it is writing is lost."""
    async with self._lock:
      if not self.ready:
        return
      self._unsettle()
      try:
        await self._client().ask("POST", "/sleep", query={"level": "2"}, timeout=self._timeout)
        self._asleep = True
      except ServerFault as fault:
        self._say(f"{fault}: it keeps its memory")
        self._settle(None)

  async def answers(self) -> bool:
    """Whether the server is there at all."""
    try:
      await self._client().ask("GET", "/health", timeout=self._timeout)
    except (ServerFault, UserError):
      return False
    return True

  async def close(self) -> None:
    """Ends what is going on, and the server if it is ours."""
    self._give_up_requests()
    for task in self._tasks:
      task.cancel()
    await asyncio.gather(*self._tasks, return_exceptions=True)
    if self._server is not None:
      await self._server.stop()

  def _client(self) -> VllmClient:
    return VllmClient(self._session, self.url, self._model)

  async def _in_own_task(self, work: Coroutine[Any, Any, None]) -> None:
    """Does what must not stop half-way because one of those who wait for it is cancelled."""
    task = asyncio.create_task(work)
    self._tasks.add(task)
    task.add_done_callback(self._tasks.discard)
    await asyncio.shield(task)

  async def _generate(self, prompt, options) -> Completion:
    with anyio.CancelScope() as scope:
      self._requests.add(scope)
      try:
        generated = await self._patiently(prompt, options)
        if not self._confirmed.keys() >= set(generated.versions):
          # They may be the weights that it is being brought to.
          await self._settled.wait()
      finally:
        self._requests.remove(scope)
    if scope.cancel_called:
      raise ServerFault(f"{self.url} was given up while it wrote a completion")
    strange = set(generated.versions) - self._confirmed.keys()
    if strange:
      raise ServerFault(f"{self.url} wrote with weights that it was not given: {min(strange)}")
    return Completion(
        generated.tokens, generated.logprobs, generated.finish_reason,
        np.array([self._confirmed[name] for name in generated.versions], np.int32))

  async def _patiently(self, prompt, options) -> Generated:
    """Asks again while the server is busy, or paused by others, for as long as an answer may take.
    """
    deadline, wait = time.monotonic() + options["timeout"], _FIRST_WAIT
    while True:
      try:
        return await self._client().generate(prompt, **options)
      except ServerBusy:
        if time.monotonic() + wait > deadline:
          raise
      await asyncio.sleep(wait)
      wait = min(2 * wait, _LONGEST_WAIT)

  async def _load(self) -> None:
    async with self._lock:
      if not (self.ready and self._loaded is self.target):
        await self._bring()

  async def _mend(self, turn: int) -> None:
    """After a fault: makes sure that the server is sound, or brings it there."""
    async with self._lock:
      # Of all the requests that one fault has ended, the first comes here for all.
      if self._turn != turn or not self.ready:
        return
      try:
        await self._confirm(self._loaded, reloaded=False)
        self._turn += 1
      except (ServerFault, UserError) as fault:
        self._say(str(fault))
        await self._bring()

  async def _bring(self) -> None:
    self._unsettle()
    self._turn += 1
    weights = None
    # The target may change meanwhile, and its old folder go.
    while weights is not self.target:
      weights, fault = self.target, None
      try:
        await (self._bring_ours(weights) if self.ours else self._bring_anothers(weights))
        self._loaded = weights
        self._confirmed[weights.name] = weights.version
      except (ServerFault, UserError) as reason:
        self._give_up_requests()
        fault = reason
    self._settle(fault)

  async def _bring_ours(self, weights: Weights) -> None:
    if self._server.alive() and self._server.url:
      try:
        return await self._sync(weights)
      except (ServerFault, UserError) as fault:
        self._say(f"{fault}: it is started again")
    elif self._loaded is not None:
      self._say(f"{self.url} has ended: it is started again")
    self._give_up_requests()
    self._asleep = False
    await self._server.start(weights.folder)
    await label(self._client(), weights, timeout=self._timeout)
    await self._confirm(weights, reloaded=False)

  async def _bring_anothers(self, weights: Weights) -> None:
    if self._loaded is None:
      await self._client().check_model(self._timeout)
    try:
      return await self._sync(weights)
    except ServerFault as fault:
      self._say(f"{fault}: once more from the start")
    await self._sync(weights)

  async def _sync(self, weights: Weights) -> None:
    try:
      await sync(self._client(), weights, timeout=self._timeout, asleep=self._asleep)
      self._asleep = False
      await self._confirm(weights, reloaded=True)
    except BaseException:
      # What they write from here on is of no use.
      self._give_up_requests()
      if not self.ours:
        await self._resume()
      raise

  async def _resume(self) -> None:
    """Leaves a server that may serve others too running, if it still listens."""
    with anyio.move_on_after(_RESUME_SECONDS, shield=True):
      try:
        await self._client().ask("POST", "/resume", timeout=_RESUME_SECONDS)
      except (ServerFault, UserError) as fault:
        self._say(str(fault))

  async def _confirm(self, weights: Weights, *, reloaded: bool) -> None:
    await confirm(self._client(), weights, self._probe, self._answers, timeout=self._timeout,
                  reloaded=reloaded)

  def _give_up_requests(self) -> None:
    for scope in tuple(self._requests):
      scope.cancel()

  def _unsettle(self) -> None:
    self.ready = False
    self._settled.clear()

  def _settle(self, fault: Exception | None) -> None:
    self.ready, self.fault = fault is None, fault
    self._settled.set()
    self._changed()
