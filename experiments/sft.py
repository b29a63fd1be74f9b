"""The warm start on its own: trains on example plans, and stops before GRPO.

    python -m experiments.sft --config=configs/quickstart.py --workdir=runs/quickstart

`experiments.train` on the same work directory goes on from there.
"""

from pathlib import Path

from experiments.program import main
from experiments.run import open_run
from experiments.training import train_sft


def warm_start(config, workdir: Path) -> None:
  """One warm start, from its config to its last checkpoint."""
  with open_run(config, workdir) as run:
    train_sft(run)


if __name__ == "__main__":
  main(warm_start)
