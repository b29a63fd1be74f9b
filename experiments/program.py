"""What every program does around its work: flags, errors and exit statuses.

What others import makes its flags as it starts, and not as it is imported: theirs may be named
alike.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from absl import app, flags, logging
from ml_collections import ConfigDict, config_flags

from conductor_jax.config_checks import check_config, check_shape
from conductor_jax.errors import UserError
from conductor_jax.training.loop import Interrupted
from experiments.policy import model_shape


def start(program: Callable[[], Any], required: Sequence[str]) -> None:
  """Runs `program()` with the command line's flags.

  The exit status is 2 after a fault that the user can mend, told in one line, and 143 after a run
  that was asked to stop.

  Args:
    program: what to run.
    required: flags that must be given.
  """
  def body(arguments: list[str]) -> None:
    if len(arguments) > 1:
      raise app.UsageError(f"unknown arguments: {' '.join(arguments[1:])}")
    if not flags.FLAGS["verbosity"].present:
      logging.set_verbosity(logging.WARNING)  # orbax reports every file it writes
    program()

  flags.mark_flags_as_required(required)
  try:
    app.run(body)  # reads the config too, which may refuse its variant
  except UserError as fault:
    print(f"error: {fault}", file=sys.stderr)
    sys.exit(2)
  except Interrupted as stopped:
    print(f"{stopped}: run the same command to go on", file=sys.stderr)
    sys.exit(143)


def run(program: Callable[[ConfigDict], Any], required: Sequence[str] = ()) -> None:
  """Runs `program(config)`, as `start` does, with a config that passes its checks."""
  config = config_flags.DEFINE_config_file(
      "config", None, "The configuration file; --config.KEY=VALUE sets one of its options.")

  def with_config() -> None:
    check_config(config.value)
    check_shape(config.value, model_shape(config.value))
    program(config.value)

  start(with_config, ["config", *required])


def main(program: Callable[[ConfigDict, Path], Any]) -> None:
  """Runs a training program, `program(config, workdir)`, as `run` does."""
  workdir = flags.DEFINE_string("workdir", None, "The work directory; made if it is not there.")
  run(lambda config: program(config, Path(workdir.value)), ["workdir"])
