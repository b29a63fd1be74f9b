"""Times the graders on answers to a benchmark's questions.

    python -m experiments.benchmarks.grading --path=DIR

`DIR` holds a folder per benchmark, as `tasks.path` of a config does. Prints one JSON line:

    cold_math_grades_per_second    MATH-500's first answers, the start of the processes included
    math_grades_per_second         its answers after that
    new_math_grades_per_second     of answers that differ from all before, so that none was read yet
    math_grades_per_second_beside_hanging_answers    of the same with `--hanging` that never end,
                                   which came first and are not counted
    hanging_seconds                until such an answer is given up
    time_limit                     seconds that it was allowed

One answer in four is the reference as it is written, one the reference in words, and two are the
references of other questions. Medians of `--repeats`, `--at_once` answers at a time.
"""

import asyncio
import json
import statistics
import time
from collections.abc import Sequence

from absl import flags

from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.sources import load_tasks
from conductor_jax.tasks.task import GradingError, Task
from experiments.program import start

# SymPy looks for its antiderivative for minutes.
_HANGS = r"The answer is $\boxed{\int_0^{\pi} \frac{\sin(x^3)}{1+x^5} dx}$."
_QUESTION = Task("hanging", "What is 3 + 4?", "7", "math500")


def answers(tasks: Sequence[Task], shift: int, addend: int = 0) -> list[tuple[Task, str]]:
  """An answer to each question; an `addend` other than 0 makes it one that nobody gave before."""
  pairs = []
  for index, task in enumerate(tasks):
    other = task if index % 4 < 2 else tasks[(index + shift) % len(tasks)]
    stated = other.reference + (f"+{addend}-{addend}" if addend else "")
    pairs.append((task, f"The answer is $\\boxed{{{stated}}}$." if index % 2 else
                  f"We add both sides. So the final answer is ${stated}$."))
  return pairs


async def rate(graders: Graders, pairs: Sequence[tuple[Task, str]], at_once: int) -> float:
  """Answers per second."""
  waiting = iter(pairs)

  async def work() -> None:
    for task, answer in waiting:
      await graders.grade(task, answer)

  began = time.perf_counter()
  await asyncio.gather(*(work() for _ in range(at_once)))
  return len(pairs) / (time.perf_counter() - began)


async def hang(graders: Graders) -> float:
  """Seconds until a hanging answer is given up.

  Raises:
    RuntimeError: it did not hang, so the measurement says nothing.
  """
  began = time.perf_counter()
  try:
    await graders.grade(_QUESTION, _HANGS)
  except GradingError:
    return time.perf_counter() - began
  raise RuntimeError(f"{_HANGS} no longer hangs: choose another answer that does")


async def rate_beside_hanging(
    graders: Graders, pairs: Sequence[tuple[Task, str]], at_once: int,
    hanging: int) -> tuple[float, list[float]]:
  """Answers per second beside those that hang, and the seconds of these."""
  begun = [asyncio.create_task(hang(graders)) for _ in range(hanging)]
  await asyncio.sleep(0)
  result = await rate(graders, pairs, at_once)
  return result, await asyncio.gather(*begun)


async def measure(
    path: str, *, repeats: int, at_once: int, hanging: int, time_limit: float) -> dict[str, float]:
  """What the program prints."""
  tasks = load_tasks(path, ["math500"], "test")
  cold, warm, fresh, beside, seconds = [], [], [], [], []
  for repeat in range(repeats):
    async with Graders(time_limit=time_limit) as graders:
      cold.append(await rate(graders, answers(tasks, 1), at_once))
      warm.append(await rate(graders, answers(tasks, 1), at_once))
      fresh.append(await rate(graders, answers(tasks, 2, addend=2 * repeat + 1), at_once))
      slowed, taken = await rate_beside_hanging(
          graders, answers(tasks, 3, addend=2 * repeat + 2), at_once, hanging)
      beside.append(slowed)
      seconds += taken
  return {
      "cold_math_grades_per_second": statistics.median(cold),
      "math_grades_per_second": statistics.median(warm),
      "new_math_grades_per_second": statistics.median(fresh),
      "math_grades_per_second_beside_hanging_answers": statistics.median(beside),
      "hanging_seconds": statistics.median(seconds),
      "time_limit": time_limit,
  }


def main() -> None:
  path = flags.DEFINE_string("path", None, "The directory with a folder per benchmark.")
  repeats = flags.DEFINE_integer("repeats", 5, "Measurements of each figure.", lower_bound=1)
  at_once = flags.DEFINE_integer("at_once", 64, "Answers that are graded at once.", lower_bound=1)
  hanging = flags.DEFINE_integer("hanging", 4, "Answers that hang, at once.", lower_bound=1)
  time_limit = flags.DEFINE_float("time_limit", 5.0, "Seconds per answer.")

  def program() -> None:
    measured = asyncio.run(measure(
        path.value, repeats=repeats.value, at_once=at_once.value, hanging=hanging.value,
        time_limit=time_limit.value))
    print(json.dumps({name: round(value, 2) for name, value in measured.items()}))

  start(program, ["path"])


if __name__ == "__main__":
  main()
