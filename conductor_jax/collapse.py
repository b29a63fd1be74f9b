"""Says when a policy's plans collapse, and what has collapsed.

A policy that is trained on its own samples can end in a narrow place from which it does not come
back: one worker for everything, one step, one wrong plan for a question. Its reward may look well
for long.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from conductor_jax.workflows.plan_metrics import mean


class Sign(NamedTuple):
  """What a metric beyond its bound means.

  Attributes:
    least: whether the bound is the least that the metric may be, and not the most.
    collapsed: what has happened.
    value: the metric with its value, as it is told.
    remedy: what to do.
  """

  least: bool
  collapsed: str
  value: str
  remedy: str


# By metric, see `rollout_metrics`.
SIGNS = {
    "parse_rate": Sign(
        True, "few plans parse", "parse rate {:.3g}",
        "lower optimizer.learning_rate, or raise sft.steps"),
    "worker_entropy_bits": Sign(
        True, "plans use hardly more than one worker", "worker entropy {:.3g} bits",
        "raise grpo.entropy_coefficient, or lower optimizer.learning_rate"),
    "steps_per_plan": Sign(
        True, "plans have become short", "steps per plan {:.3g}",
        "raise grpo.entropy_coefficient, or lower what reward takes for effort"),
    "access_density": Sign(
        True, "steps do not see earlier answers", "access density {:.3g}",
        "raise grpo.entropy_coefficient, or lower optimizer.learning_rate"),
    "wrong_duplicates": Sign(
        False, "groups repeat plans that are wrong", "wrong duplicates {:.3g}",
        "raise grpo.entropy_coefficient or rollout.temperature"),
    "failed_groups": Sign(
        False, "groups fail as a whole, and teach nothing", "failed groups {:.3g}",
        "raise grpo.group_size or rollout.temperature, or train on easier tasks"),
}


class CollapseGuard:
  """Watches the metrics of a run, iteration by iteration.

  A metric is beyond its bound when its mean over the last `iterations` iterations is. Iterations
  that do not have it count for nothing.
  """

  def __init__(self, iterations: int, **bounds: float):
    """Args:
      iterations: to take means over; 0 for no guard at all.
      bounds: of each of `SIGNS`.
    """
    self._iterations = iterations
    self._bounds = bounds
    self._windows = {name: deque[float | None](maxlen=iterations) for name in SIGNS}
    self._seen = 0
    self._last_beyond: dict[str, int] = {}

  @property
  def collapsed(self) -> int:
    """How many metrics are beyond their bounds."""
    return sum(last == self._seen for last in self._last_beyond.values())

  def observe(self, values: Mapping[str, Any]) -> list[str]:
    """Takes in the metrics of one iteration.

    Returns:
      A sentence on each metric that is beyond its bound, and was within it for as many iterations
      as the mean is over.
    """
    self._seen += 1
    warnings = []
    for name, window in self._windows.items():
      window.append(values.get(name))
      value = mean(each for each in window if each is not None)
      if len(window) < self._iterations or value is None or not self._is_beyond(name, value):
        continue
      last = self._last_beyond.get(name)
      if last is None or self._seen - last > self._iterations:
        warnings.append(self._warning(name, value))
      self._last_beyond[name] = self._seen
    return warnings

  def _is_beyond(self, name: str, value: float) -> bool:
    bound = self._bounds[name]
    return value < bound if SIGNS[name].least else value > bound

  def _warning(self, name: str, value: float) -> str:
    sign = SIGNS[name]
    over = f"the last {self._iterations} iterations" if self._iterations > 1 else "one iteration"
    return (f"collapse: {sign.collapsed} ({sign.value.format(value)} over {over}, bound "
            f"{self._bounds[name]:g}): {sign.remedy}")


def collapse_warnings(
    guard: CollapseGuard, iterations: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
  """What a guard says about the iterations of a whole run.

  Args:
    guard: one that has seen nothing yet.
    iterations: the metrics of each, with its "step".

  Returns:
    "iteration", from 1, and "warning" of each; JSON types.
  """
  return [{"iteration": values["step"] + 1, "warning": warning}
          for values in iterations for warning in guard.observe(values)]
