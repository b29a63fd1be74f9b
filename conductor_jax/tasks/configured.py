"""Tasks of benchmarks, from the source that the `tasks` node of a config names."""

from collections.abc import Callable, Sequence

from ml_collections import ConfigDict

from conductor_jax.errors import UserError
from conductor_jax.tasks.benchmark import Benchmark
from conductor_jax.tasks.sources import benchmark_table, load_hub_tasks, load_tasks
from conductor_jax.tasks.task import Task


def configured_table(options: ConfigDict) -> dict[str, Benchmark]:
  """All benchmarks by their names, with the options that some have, and one's own.

  Raises:
    UserError: one of the options is impossible; names the key.
  """
  for key in ("livecodebench_release", "own"):
    try:
      benchmark_table(**{key: options[key]})
    except UserError as fault:
      raise UserError(f"--config.tasks.{key}: {fault}") from fault
  return benchmark_table(
      livecodebench_release=options.livecodebench_release,
      bigcodebench_prompt=options.bigcodebench_prompt, gpqa_seed=options.gpqa_seed, own=options.own)


def configured_tasks(
    options: ConfigDict, benchmarks: Sequence[str], *,
    say: Callable[[str], None] = lambda line: None
) -> list[Task]:
  """The tasks of benchmarks, in the order of their rows.

  Args:
    options: the `tasks` node; its source is "files" or "hub".
    benchmarks: names, whether or not the node lists them.
    say: told how many rows a benchmark leaves out, and why.

  Raises:
    UserError: as in `load_tasks` and `load_hub_tasks`.
  """
  table = configured_table(options)
  if options.source == "hub":
    return load_hub_tasks(
        benchmarks, options.split, revisions=options.revisions, table=table, say=say)
  if not options.path:
    raise UserError("--config.tasks.path= must name the folder of the benchmark files")
  return load_tasks(
      options.path, benchmarks, options.split, files=options.files, table=table, say=say)
