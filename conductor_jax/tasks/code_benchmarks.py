"""The benchmarks whose answer is a program; their references are the tests that it must pass."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from conductor_jax.tasks.benchmark import TEXT, Benchmark, Hub, Row, RowError
from conductor_jax.tasks.code_tests import CheckTests, UnitTests
from conductor_jax.tasks.livecodebench import livecodebench

BIGCODEBENCH_PROMPTS = ("instruct", "complete")

_COMPLETE = ("Complete this Python program. Answer with the whole program, its imports included, "
             "in one block of code.")


def _program(start: str) -> str:
  return f"{_COMPLETE}\n\n```python\n{start.rstrip()}\n```"


def _check_tests(row: Row) -> str:
  try:
    return CheckTests(row["prompt"], row["test"], row["entry_point"]).to_reference()
  except ValueError as fault:
    raise RowError(f"columns 'test' and 'entry_point': {fault}") from fault


def _unit_tests(row: Row) -> str:
  try:
    return UnitTests(row["code_prompt"], row["test"], row["entry_point"]).to_reference()
  except ValueError as fault:
    raise RowError(f"columns 'test' and 'entry_point': {fault}") from fault


def _libraries(row: Row) -> list[str]:
  """The packages that the hub names in a text such as "['random', 'numpy']"."""
  if not re.fullmatch(r"\s*\[.*\]\s*", row["libs"], re.DOTALL):
    raise RowError(f"column 'libs' must name packages such as \"['random', 'numpy']\", "
                   f"got {row['libs']!r:.60}")
  return re.findall(r"""['"]([^'"]*)['"]""", row["libs"])


def _bigcodebench(hub: str, names: tuple[str, ...], prompt: str) -> Benchmark:
  return Benchmark(
      Hub(hub),
      split="v0.1.4",
      names=names,
      columns=dict.fromkeys(("task_id", "complete_prompt", "instruct_prompt", "code_prompt", "test",
                             "entry_point", "libs"), TEXT),
      question=(lambda row: row["instruct_prompt"]) if prompt == "instruct" else (
          lambda row: _program(row["complete_prompt"])),
      reference=_unit_tests,
      identity=lambda row: row["task_id"],
      metadata=lambda row: {"libs": _libraries(row),
                            "canonical_solution": row.get("canonical_solution")})


def code_benchmarks(
    livecodebench_release: str, bigcodebench_prompt: str) -> Mapping[str, Benchmark]:
  """The table.

  Args:
    livecodebench_release: as in `release_files`.
    bigcodebench_prompt: "instruct" describes the program, "complete" gives its beginning.

  Raises:
    UserError: there is no such release.
  """
  return MappingProxyType({
      "livecodebench": livecodebench(livecodebench_release),
      # In the release v0.1.0_hf, which its authors have as a file, the tests of the tasks 16, 37,
      # 178, 211, 215, 241, 267, 760, 1005 and 1006 are not those of v0.1.4.
      "bigcodebench": _bigcodebench(
          "bigcode/bigcodebench", ("BigCodeBench-v*", "BigCodeBench"), bigcodebench_prompt),
      "bigcodebench-hard": _bigcodebench(
          "bigcode/bigcodebench-hard", ("BigCodeBench-Hard*",), bigcodebench_prompt),
      "humaneval": Benchmark(
          Hub("openai/openai_humaneval", "openai_humaneval"),
          split="test",
          names=("HumanEval",),
          columns=dict.fromkeys(
              ("task_id", "prompt", "entry_point", "canonical_solution", "test"), TEXT),
          question=lambda row: _program(row["prompt"]),
          reference=_check_tests,
          identity=lambda row: row["task_id"],
          metadata=lambda row: {"canonical_solution": row["canonical_solution"]}),
  })
