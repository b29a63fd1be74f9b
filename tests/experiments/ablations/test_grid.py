"""The logic of a grid, with training and evaluation that are not real."""

import json
import os
import signal

import pytest

from conductor_jax.errors import OutOfBudget, UserError
from conductor_jax.training.loop import Interrupted
from configs import quickstart
from experiments.ablations.ablation import Ablation, Arm, Measurement
from experiments.ablations.grid import _numbers, run_grid
from tests.experiments.ablations.fakes import Fakes

TWO = Ablation("Two", (Arm("with"), Arm("without", {"workflow.subtasks": False})))
ROUNDS = Ablation(
    "Rounds", (Arm("one"), Arm("on", {"grpo.iterations": 7}, after="one")),
    (Measurement("short", {"workflow.max_rounds": 1}),
     Measurement("long", {"workflow.max_rounds": 2}, strategy="conductor_without_access")))


def grid(workdir, ablation=TWO, *, config=None, seeds=(0, 1), **options):
  run_grid(ablation, config or quickstart.get_config(), workdir, seeds=seeds, **options)


def rows(workdir):
  found = json.loads((workdir / "results.json").read_text())
  return {(row["measurement"], row["arm"]): row for row in found["rows"]}


def stop_at(call, how):
  def at(reached):
    if reached == call:
      how()
  return at


def test_every_arm_is_trained_and_measured_for_every_seed(monkeypatch, tmp_path):
  fakes = Fakes().patch(monkeypatch)
  grid(tmp_path)
  assert fakes.calls == [
      f"{work}" for seed in (0, 1) for arm in ("with", "without")
      for work in (f"train {arm}/seed-{seed}", f"evaluate {arm}/seed-{seed}/heldout conductor 1")]
  config = fakes.configs["train without/seed-1"]
  assert (config.seed, config.workflow.subtasks) == (1, False)
  assert fakes.configs["evaluate without/seed-1/heldout conductor 1"] == config


def test_a_measurement_has_its_own_options_beside_those_of_the_arm(monkeypatch, tmp_path):
  fakes = Fakes().patch(monkeypatch)
  grid(tmp_path, ROUNDS, seeds=[4])
  config = fakes.configs["evaluate on/seed-4/long conductor_without_access 1"]
  assert (config.workflow.max_rounds, config.grpo.iterations, config.seed) == (2, 7, 4)
  assert fakes.configs["train on/seed-4"].workflow.max_rounds == 1


def test_an_arm_goes_on_from_the_exported_policy_of_the_one_before(monkeypatch, tmp_path):
  fakes = Fakes().patch(monkeypatch)
  grid(tmp_path, ROUNDS, seeds=[4], arms=["on"])
  assert [call for call in fakes.calls if "evaluate" not in call] == [
      "train one/seed-4", "export one/seed-4", "train on/seed-4"]
  config = fakes.configs["train on/seed-4"]
  assert config.model.weights == str(tmp_path / "one/seed-4/policy") and config.sft.steps == 0


def test_results_are_means_over_seeds_and_differences_from_the_first_arm(monkeypatch, tmp_path):
  accuracies = {("with", 0): 0.8, ("with", 1): 0.6, ("without", 0): 0.4, ("without", 1): 0.4}
  Fakes(lambda arm, seed, _: accuracies[arm, seed]).patch(monkeypatch, plot=True)
  grid(tmp_path)
  found = rows(tmp_path)["heldout", "without"]
  assert found["numbers"]["accuracy"]["by_seed"] == {"0": 0.4, "1": 0.4}
  assert found["numbers"]["accuracy/words"]["mean"] == 0.8
  # −0.4 and −0.2: t with 1 degree of freedom is 12.706, and s / √2 is 0.1.
  assert found["difference"]["mean"] == pytest.approx(-0.3)
  assert found["difference"]["interval"] == pytest.approx([-1.5706, 0.9706], abs=1e-4)
  assert "| without | 2 | 40.0 ± 0.0 | −30.0 ± 127.1 |" in (tmp_path / "table.md").read_text()
  assert (tmp_path / "plot.svg").exists() and (tmp_path / "plot.png").exists()


def test_what_is_done_is_not_done_again(monkeypatch, tmp_path):
  Fakes().patch(monkeypatch)
  grid(tmp_path)
  table = (tmp_path / "table.md").read_text()
  (tmp_path / "table.md").unlink()
  fakes = Fakes().patch(monkeypatch)
  grid(tmp_path)
  assert fakes.calls == [] and (tmp_path / "table.md").read_text() == table


def test_more_seeds_arms_and_repeats_add_to_what_there_is(monkeypatch, tmp_path):
  Fakes().patch(monkeypatch)
  grid(tmp_path, seeds=[0], arms=["with"])
  assert list(rows(tmp_path)) == [("heldout", "with")]
  fakes = Fakes().patch(monkeypatch)
  grid(tmp_path, seeds=[0, 1], repeats=2)
  assert [call for call in fakes.calls if "seed-0" in call] == [
      "evaluate with/seed-0/heldout conductor 2", "train without/seed-0",
      "evaluate without/seed-0/heldout conductor 2"]
  assert rows(tmp_path)["heldout", "with"]["seeds"] == [0, 1]
  # Fewer repeats than there are, and other seeds, take nothing away.
  fakes = Fakes().patch(monkeypatch)
  grid(tmp_path, seeds=[1], repeats=1)
  assert fakes.calls == [] and rows(tmp_path)["heldout", "with"]["seeds"] == [0, 1]


@pytest.mark.parametrize("stop", [
    OutOfBudget("$1 is spent"), UserError("no finite gradient"), KeyboardInterrupt()])
def test_a_fault_ends_the_grid_with_the_results_so_far_and_it_goes_on_from_there(
    monkeypatch, tmp_path, stop):
  def fail():
    raise stop

  Fakes(at=stop_at("train without/seed-0", fail)).patch(monkeypatch)
  with pytest.raises(type(stop)):
    grid(tmp_path)
  assert list(rows(tmp_path)) == [("heldout", "with")]
  fakes = Fakes().patch(monkeypatch)
  grid(tmp_path)
  assert fakes.calls[:2] == ["train without/seed-0", "evaluate without/seed-0/heldout conductor 1"]
  assert len(fakes.calls) == 6


@pytest.mark.parametrize(("call", "line"), [
    ("train without/seed-0", "grpo stopped after step 3 of 6"),
    ("evaluate with/seed-0/heldout conductor 1", "stopped after with, seed 0: heldout")])
def test_a_signal_ends_the_grid_wherever_it_comes(monkeypatch, tmp_path, call, line):
  # A run that has nothing left to stop ends as usual; the grid must not go on all the same.
  fakes = Fakes(at=stop_at(call, lambda: os.kill(os.getpid(), signal.SIGTERM))).patch(monkeypatch)
  with pytest.raises(Interrupted, match=f"^{line}$"):
    grid(tmp_path)
  assert fakes.calls[-1] == call


def test_a_measurement_whose_numbers_were_not_noted_is_taken_again(monkeypatch, tmp_path):
  Fakes().patch(monkeypatch)
  grid(tmp_path, seeds=[0])
  (tmp_path / "with/seed-0/heldout/cell.json").unlink()
  fakes = Fakes().patch(monkeypatch)
  grid(tmp_path, seeds=[0])
  assert fakes.calls == ["evaluate with/seed-0/heldout conductor 1"]


def test_measurements_that_are_missing_are_told(monkeypatch, tmp_path):
  def fail():
    raise UserError("down")

  Fakes(at=stop_at("evaluate one/seed-0/long conductor_without_access 1", fail)).patch(monkeypatch)
  with pytest.raises(UserError, match="down"):
    grid(tmp_path, ROUNDS, seeds=[0])
  assert "1 of 2 measurements are there." in (tmp_path / "table.md").read_text()


@pytest.mark.parametrize("seeds", [[0], [3]])
def test_a_grid_of_another_config_is_refused_before_anything_is_done(monkeypatch, tmp_path, seeds):
  Fakes().patch(monkeypatch)
  grid(tmp_path, seeds=[0])
  fakes, config = Fakes().patch(monkeypatch), quickstart.get_config()
  config.grpo.iterations = 9
  with pytest.raises(UserError, match=(
      "with/seed-0 belongs to a run with grpo.iterations=140, not 9: take another --workdir")):
    grid(tmp_path, config=config, seeds=seeds)
  assert fakes.calls == []


def test_a_grid_of_other_arms_or_measurements_is_refused(monkeypatch, tmp_path):
  Fakes().patch(monkeypatch)
  grid(tmp_path, seeds=[0])
  other = Ablation("Two", (Arm("with", {"workflow.few_shot": 1}), TWO.arms[1]))
  with pytest.raises(UserError, match="with/seed-0 belongs to a run with workflow.few_shot=0"):
    grid(tmp_path, other, seeds=[0])
  other = Ablation("Two", TWO.arms, (Measurement("heldout", {"evaluation.temperature": 0.0}),))
  with pytest.raises(UserError, match="seed-0/heldout belongs to a run with evaluation.temp"):
    grid(tmp_path, other, seeds=[0])


def test_options_of_a_later_arm_are_checked_before_the_first_is_trained(monkeypatch, tmp_path):
  fakes = Fakes().patch(monkeypatch)
  with pytest.raises(UserError, match="^bad, training: --config.grpo.clip_low=2.0"):
    grid(tmp_path, Ablation("Bad", (Arm("good"), Arm("bad", {"grpo.clip_low": 2.0}))))
  assert fakes.calls == [] and list(tmp_path.iterdir()) == []


def test_numbers_that_cannot_be_read_are_one_line(monkeypatch, tmp_path):
  Fakes().patch(monkeypatch)
  grid(tmp_path, seeds=[0])
  (tmp_path / "with/seed-0/heldout/cell.json").write_text("{")
  with pytest.raises(UserError, match="cell.json is not JSON .*: remove it to measure again"):
    grid(tmp_path, seeds=[0])


def test_seeds_are_whole_numbers_each_once():
  assert _numbers(["3", "0", "3"]) == [3, 0]
  for seeds in ([], ["a"], ["-1"], ["1.5"]):
    with pytest.raises(UserError, match="^--seeds=.*: must be whole numbers from 0 on"):
      _numbers(seeds)
