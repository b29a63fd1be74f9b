"""Training and evaluation that leave the files of real ones, and note that they were asked."""

import json
from pathlib import Path

from conductor_jax.training.loop import Interrupted
from experiments.workdir import claim


class Fakes:
  """Stands in for `train`, `evaluate` and `export` of experiments/ablations/grid.py.

  Attributes:
    calls: what was asked for, such as "train with/seed-0", in order.
    configs: those of the calls.
    accuracy: of a run's policy by (arm, seed, measurement); tasks are ten.
    at: told of each call before its work; it may raise, or kill.
  """

  def __init__(self, accuracy=lambda arm, seed, measurement: 0.5, at=lambda call: None):
    self.calls: list[str] = []
    self.configs: dict[str, object] = {}
    self.accuracy, self.at = accuracy, at

  def patch(self, monkeypatch, *, plot=False) -> "Fakes":
    """Takes the place of the real ones; without `plot` none is drawn, which takes its time."""
    monkeypatch.setattr("experiments.ablations.grid._free_memory", lambda: None)
    for name in ("train", "evaluate", "export"):
      monkeypatch.setattr(f"experiments.ablations.grid.{name}", getattr(self, name))
    if not plot:
      monkeypatch.setattr(
          "conductor_jax.reporting.ablation_files.ablation_plot", lambda *arguments: None)
    return self

  def _noted(self, call: str, config=None) -> None:
    self.calls.append(call)
    self.configs[call] = config
    self.at(call)

  def train(self, config, workdir: Path, stop) -> None:
    call = f"train {workdir.parent.name}/{workdir.name}"
    claim(workdir, config)
    self._noted(call, config)
    if stop():
      raise Interrupted("grpo stopped after step 3 of 6")
    (workdir / "summary.json").write_text("{}")

  def evaluate(self, config, workdir: Path, *, strategies, repeats, run, stop) -> None:
    arm, seed = run.parent.name, int(run.name.removeprefix("seed-"))
    assert workdir.parent == run and (run / "summary.json").exists()
    claim(workdir, config)
    self._noted(f"evaluate {arm}/{run.name}/{workdir.name} {strategies[0]} {repeats}", config)
    right = round(10 * self.accuracy(arm, seed, workdir.name))
    step = {"worker": 0, "subtask": "", "sees": [], "sees_previous": False}
    records = [{
        "strategy": strategies[0], "variant": "", "benchmark": "words" if task < 5 else "two-hop",
        "task": f"t{task}", "question": f"{task}", "repeat": repeat, "rejected": False,
        "grade": {"correct": task < right, "extracted": "a"}, "plan": [step], "earlier": [],
        "calls": [{"prompt_tokens": 10, "completion_tokens": 5, "cost": 0.001, "latency": 0.1,
                   "outcome": "answered"}]} for task in range(10) for repeat in range(repeats)]
    (workdir / "items.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))

  def export(self, workdir: Path, output: Path, *, merge, dtype) -> None:
    assert merge and dtype == "float32" and (workdir / "summary.json").exists()
    self._noted(f"export {workdir.parent.name}/{workdir.name}")
    output.mkdir()
