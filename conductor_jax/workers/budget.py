"""What a run may spend on its workers: reserved from the worst case, settled from the usage.

Money is taken before a request is sent, as much as it could cost at most, and what it did not cost
is given back when the answer is there. So calls that run at the same time cannot spend more than
there is. Attempts that may have been billed without an answer count at their worst case.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

from conductor_jax.errors import UserError

# Sums of fractions of dollars are off by less.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Spending:
  """What was spent, or may be.

  Attributes:
    calls: HTTP requests.
    tokens: read and written.
    cost: dollars.
    possible_tokens: that requests without an answer may have taken on top, at most.
    possible_cost: dollars that they may have cost on top, at most.
    possibly_billed: how many such requests there are.
    estimated: requests whose tokens are estimated, because the endpoint reported none.
  """

  calls: int = 0
  tokens: int = 0
  cost: float = 0.0
  possible_tokens: int = 0
  possible_cost: float = 0.0
  possibly_billed: int = 0
  estimated: int = 0

  def __add__(self, other: "Spending") -> "Spending":
    return Spending(
        self.calls + other.calls, self.tokens + other.tokens, self.cost + other.cost,
        self.possible_tokens + other.possible_tokens, self.possible_cost + other.possible_cost,
        self.possibly_billed + other.possibly_billed, self.estimated + other.estimated)


@dataclass(frozen=True)
class Allowance:
  """The most that may be spent; None for no limit.

  Attributes:
    dollars: money.
    tokens: read and written.
    calls: HTTP requests.
  """

  dollars: float | None = None
  tokens: float | None = None
  calls: float | None = None


class BudgetError(Exception):
  """There is no room for a call, and none can become free."""


class _Account:
  """One allowance, what is spent of it, and what is reserved for requests under way."""

  def __init__(self, owner: str, allowance: Allowance, spent: Spending):
    self.owner, self.allowance = owner, allowance
    self._limited = allowance != Allowance()
    self._spent = list(astuple(spent))
    self.under_way, self._tokens, self._dollars = 0, 0, 0.0

  @property
  def spent(self) -> Spending:
    return Spending(*self._spent)

  def reserve(self, dollars: float, tokens: int, requests: int) -> None:
    """Reserves for so many requests; gives back with everything negative."""
    self.under_way += requests
    self._tokens += tokens
    # Where nothing is under way, no remainder of sums of fractions is either.
    self._dollars = self._dollars + dollars if self.under_way else 0.0

  def spend(self, spent: tuple[float, ...]) -> None:
    """Takes the fields of a `Spending`."""
    self._spent = [before + more for before, more in zip(self._spent, spent, strict=True)]

  def lack(self, dollars: float, tokens: int) -> str | None:
    """What a request of at most so much does not fit into, None if it fits."""
    if not self._limited:
      return None
    allowance, spent = self.allowance, self.spent
    if allowance.calls is not None and spent.calls + self.under_way + 1 > allowance.calls:
      return f"{allowance.calls:,.0f} calls"
    tokens += spent.tokens + spent.possible_tokens + self._tokens
    if allowance.tokens is not None and tokens > allowance.tokens:
      return f"{allowance.tokens:,.0f} tokens"
    dollars += spent.cost + spent.possible_cost + self._dollars
    if allowance.dollars is not None and dollars > allowance.dollars * (1 + _ROUNDING):
      return f"${allowance.dollars:,.10g}"
    return None


@dataclass
class _Waiting:
  worker: str
  dollars: float
  tokens: int
  turn: asyncio.Future


class Budget:
  """The budget of a run and of each of its workers.

  Args:
    allowance: the run's.
    workers: those of single workers, by name, within the run's.
    spent: what each worker has spent before, by name.
  """

  def __init__(
      self, allowance: Allowance | None = None, workers: Mapping[str, Allowance] | None = None,
      spent: Mapping[str, Spending] | None = None):
    spent = spent or {}
    self._run = _Account("the run", allowance or Allowance(), sum(spent.values(), Spending()))
    self._limits = dict(workers or {})
    self._workers = {name: self._account(name, total) for name, total in spent.items()}
    self._waiting: deque[_Waiting] = deque()

  def _account(self, worker: str, spent: Spending) -> _Account:
    return _Account(f"worker {worker!r}", self._limits.get(worker, Allowance()), spent)

  def bounds_answers(self, worker: str) -> bool:
    """Whether dollars or tokens are limited, and so what an answer of this worker may take."""
    return any(allowance.dollars is not None or allowance.tokens is not None
               for allowance in (self._run.allowance, self._limits.get(worker, Allowance())))

  def spending(self) -> dict[str, Spending]:
    """What each worker has spent, by name."""
    return {name: account.spent for name, account in self._workers.items()}

  async def reserve(self, worker: str, dollars: float, tokens: int) -> None:
    """Takes what a request may cost at most; waits while that may still become free.

    Raises:
      BudgetError: it does not fit, whatever the requests under way will cost.
    """
    if worker not in self._workers:
      self._workers[worker] = self._account(worker, Spending())
    if not self._waiting and self._lack(worker, dollars, tokens) is None:
      self._reserve(worker, dollars, tokens, 1)
      return
    waiting = _Waiting(worker, dollars, tokens, asyncio.get_running_loop().create_future())
    self._waiting.append(waiting)
    self._admit()
    try:
      await waiting.turn
    except asyncio.CancelledError:
      turn = waiting.turn
      if turn.cancelled():
        self._admit()  # those behind it may fit
      elif turn.exception() is None:
        self.settle(worker, dollars, tokens, Spending())  # it was admitted in the same moment
      raise

  def settle(self, worker: str, dollars: float, tokens: int, spent: Spending) -> None:
    """Gives back what was reserved, and takes what the request did cost."""
    self._reserve(worker, -dollars, -tokens, -1)
    fields = tuple(vars(spent).values())
    self._run.spend(fields)
    self._workers[worker].spend(fields)
    if self._waiting:
      self._admit()

  def _reserve(self, worker: str, dollars: float, tokens: int, calls: int) -> None:
    for account in (self._run, self._workers[worker]):
      account.reserve(dollars, tokens, calls)

  def _lack(self, worker: str, dollars: float, tokens: int) -> tuple[_Account, str] | None:
    for account in (self._run, self._workers[worker]):
      if lack := account.lack(dollars, tokens):
        return account, lack
    return None

  def _admit(self) -> None:
    """Admits those in front that fit, and turns away those for whom there will never be room."""
    kept: deque[_Waiting] = deque()
    blocked: set[str] = set()  # those behind one that waits for the same account wait too
    while self._waiting:
      waiting = self._waiting.popleft()
      if waiting.turn.done():
        continue
      lack = self._lack(waiting.worker, waiting.dollars, waiting.tokens)
      if lack is not None:
        account, amount = lack
        if account.under_way:
          blocked.add(account.owner)
          kept.append(waiting)
        else:
          waiting.turn.set_exception(BudgetError(self._told(account, amount, waiting)))
      elif blocked & {self._run.owner, self._workers[waiting.worker].owner}:
        kept.append(waiting)
      else:
        self._reserve(waiting.worker, waiting.dollars, waiting.tokens, 1)
        waiting.turn.set_result(None)
    self._waiting = kept

  def _told(self, account: _Account, amount: str, waiting: _Waiting) -> str:
    return (f"the budget of {account.owner}, {amount}, has no room for a call of "
            f"{waiting.worker!r} of at most ${waiting.dollars:.3g} and {waiting.tokens:,} tokens")


def told(spending: Mapping[str, Spending]) -> str:
  """What was spent on what, in one line."""
  parts = [f"{name} ${spent.cost:.4g}"
           + (f" (and possibly ${spent.possible_cost:.4g})" if spent.possible_cost else "")
           + f" for {spent.tokens:,} tokens in {spent.calls:,} calls"
           for name, spent in sorted(spending.items(), key=lambda item: -item[1].cost)
           if spent.calls]
  return ", ".join(parts) or "nothing"


def allowances(
    limits: Sequence[tuple[str, str, float]], workers: Sequence[str]) -> dict[str, Allowance]:
  """The allowances of single workers, from (worker, "dollars", "tokens" or "calls", limit).

  Raises:
    UserError: there is no such worker.
  """
  found: dict[str, dict[str, float]] = {}
  for worker, kind, limit in limits:
    if worker not in workers:
      raise UserError(f"--config.pool.budget.workers: there is no worker {worker!r}, only "
                      f"{', '.join(workers)}")
    found.setdefault(worker, {})[kind] = limit
  return {worker: Allowance(**kinds) for worker, kinds in found.items()}
