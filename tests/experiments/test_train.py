"""Whole runs of the training program, as a user starts them, on the quickstart in small."""

import json
import math
import re
import shutil
import signal
import socket
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from conductor_jax.errors import UserError
from conductor_jax.models.tokenizer import load_tokenizer
from conductor_jax.reporting.metrics import RolloutLog
from experiments.export import export
from tests.experiments.small_run import (
    SMALL,
    arrays,
    assert_same_run,
    gone,
    metrics,
    recorded,
    wait_for,
)


@pytest.fixture(scope="module")
def uninterrupted(program, tmp_path_factory) -> Path:
  workdir = tmp_path_factory.mktemp("runs") / "uninterrupted"
  done = program.run(workdir, *SMALL)
  assert done.returncode == 0, done.stderr
  assert "6/6  reward" in done.stdout
  return workdir


@pytest.fixture(scope="module")
def warm_start(program, tmp_path_factory) -> tuple[Path, Path]:
  """The work directory of a warm start alone, and its policy as a Hugging Face folder."""
  folder = tmp_path_factory.mktemp("warm")
  assert program.run(folder / "run", *SMALL, module="experiments.sft").returncode == 0
  export_run(folder / "run", folder / "policy")
  return folder / "run", folder / "policy"


@pytest.fixture(scope="module")
def adapted(program, warm_start, tmp_path_factory) -> Path:
  """A run of adapters beside the warm start's weights, in two micro-batches, entropy steered."""
  workdir = tmp_path_factory.mktemp("runs") / "adapted"
  done = program.run(
      workdir, *SMALL, f"--config.model.weights={warm_start[1]}", "--config.sft.steps=0",
      "--config.model.lora_rank=4", "--config.model.lora_alpha=8",
      "--config.grpo.samples_per_row=2", "--config.grpo.micro_batches=2",
      "--config.grpo.entropy_target=9", "--config.grpo.entropy_coefficient=0.02",
      "--config.optimizer.learning_rate=0.01")
  assert done.returncode == 0, done.stderr
  return workdir


def export_run(workdir: Path, output: Path, merge: bool = False) -> None:
  export(workdir, output, merge=merge, dtype="float32")


def children(pid: int) -> list[int]:
  return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_run_leaves_its_records_in_the_work_directory(uninterrupted):
  names = {path.name for path in uninterrupted.iterdir()}
  assert names >= {"config.json", "checkpoints", "events", "metrics.jsonl", "rollouts",
                   "report.html", "summary.json"}
  lines = metrics(uninterrupted)
  assert [line["step"] for line in lines if line["phase"] == "sft"] == list(range(30))
  assert [line["step"] for line in lines if line["phase"] == "grpo"] == list(range(6))
  sft = [line["loss"] for line in lines if line["phase"] == "sft"]
  assert sft[-1] < 0.6 * sft[0]


def test_a_step_of_each_phase_records_what_it_learnt_and_how_fast(uninterrupted):
  lines = [json.loads(line) for line in (uninterrupted / "metrics.jsonl").read_text().splitlines()]
  every = {"loss", "entropy", "grad_norm", "learning_rate", "skipped", "tokens_per_second",
           "model_flops_per_second", "seconds", "seconds_training"}
  grpo = every | {
      "reward", "reward_std", "zero_variance_groups", "padding_share", "clip_fraction",
      "clip_fraction_low", "clip_fraction_high", "kl", "kl_to_sampler", "logprob_gap_mean",
      "logprob_gap_max", "entropy_coefficient", "seconds_sampling", "seconds_executing",
      "seconds_waiting", "seconds_publishing", "staleness", "staleness_max", "dropped_groups"}
  for line in lines:
    wanted = grpo if line["phase"] == "grpo" else every
    assert wanted <= line.keys()
    assert all(math.isfinite(line[name]) for name in wanted)
    # No peak is known of a CPU.
    assert "mfu" not in line
    assert line["tokens_per_second"] > 0 and line["model_flops_per_second"] > 0
  last = lines[-1]
  assert {line["staleness_max"] for line in lines if line["phase"] == "grpo"} == {0}
  # On the weights that sampled them no ratio is far from 1.
  assert last["clip_fraction"] == 0 and 0 <= last["kl_to_sampler"] < 1e-6
  assert 0 < last["padding_share"] < 1


def test_the_sampler_and_the_trainer_agree_on_every_token(uninterrupted):
  gaps = [line["logprob_gap_max"] for line in metrics(uninterrupted) if line["phase"] == "grpo"]
  assert max(gaps) < 1e-4


def test_the_summary_compares_four_strategies_on_the_held_out_tasks(uninterrupted):
  summary = json.loads((uninterrupted / "summary.json").read_text())
  assert summary["iterations"] == 6 and summary["seconds"] > 0
  assert list(summary["heldout"]) == ["before_rl", "after_rl", "best_single_worker", "random_plan"]
  for result in summary["heldout"].values():
    assert result["tasks"] == 12
    assert set(result) >= {
        "accuracy", "accuracy_by_kind", "parse_rate", "correct_given_parsed", "steps_per_plan",
        "worker_entropy_bits", "tokens_per_task", "cost_per_task"}
  assert summary["heldout"]["best_single_worker"]["accuracy_by_kind"]["two-hop"] == 0
  assert math.isclose(summary["heldout"]["random_plan"]["parse_rate"], 1)


@pytest.mark.integration
def test_a_killed_run_resumes_bit_for_bit(program, uninterrupted, tmp_path):
  workdir = tmp_path / "run"
  process = program.start(workdir, *SMALL)
  wait_for(process, workdir, "grpo", 3)  # a checkpoint after 2, and one more step since
  server, = children(process.pid)
  process.kill()
  process.communicate()
  assert gone(server)
  assert recorded(workdir, "grpo") < 6
  resumed = program.run(workdir, *SMALL)
  assert resumed.returncode == 0, resumed.stderr
  assert re.search("GRPO: resuming after step [24] from", resumed.stdout)
  assert_same_run(uninterrupted, workdir)


@pytest.mark.integration
def test_a_run_killed_in_the_warm_start_resumes_bit_for_bit(program, uninterrupted, tmp_path):
  workdir = tmp_path / "run"
  process = program.start(workdir, *SMALL)
  wait_for(process, workdir, "sft", 11)
  process.kill()
  process.communicate()
  assert recorded(workdir, "sft") < 30
  resumed = program.run(workdir, *SMALL)
  assert resumed.returncode == 0, resumed.stderr
  assert re.search("warm start: resuming after step [12]0 from", resumed.stdout)
  assert_same_run(uninterrupted, workdir)


@pytest.mark.integration
def test_a_terminated_run_writes_a_checkpoint_and_resumes_after_it(
    program, uninterrupted, tmp_path):
  workdir = tmp_path / "run"
  process = program.start(workdir, *SMALL)
  wait_for(process, workdir, "grpo", 1)
  process.send_signal(signal.SIGTERM)
  _, err = process.communicate(timeout=60)
  assert process.returncode == 143
  assert "run the same command to go on" in err and "Traceback" not in err
  stopped = recorded(workdir, "grpo")
  assert stopped < 6 and (workdir / "checkpoints" / "grpo" / str(stopped)).is_dir()
  resumed = program.run(workdir, *SMALL)
  assert f"GRPO: resuming after step {stopped}" in resumed.stdout
  assert_same_run(uninterrupted, workdir)


LAGGING = (*SMALL, "--config.rollout.max_staleness=1", "--config.report.rollouts_every=1")


def asked(workdir: Path) -> list[str]:
  """The tasks of all rollouts, sorted."""
  log = RolloutLog(workdir)
  return sorted(row["task"]["id"] for iteration in log.iterations()
                for row in log.read(iteration))


@pytest.mark.integration
def test_rollouts_may_lag_an_update_behind_and_a_killed_run_loses_and_repeats_none(
    program, tmp_path):
  whole, killed = tmp_path / "whole", tmp_path / "killed"
  assert program.run(whole, *LAGGING).returncode == 0
  process = program.start(killed, *LAGGING)
  wait_for(process, killed, "grpo", 3)
  process.kill()
  process.communicate()
  resumed = program.run(killed, *LAGGING)
  assert "GRPO: resuming after step" in resumed.stdout
  for workdir in (whole, killed):
    lines = grpo_metrics(workdir)
    assert [line["step"] for line in lines] == list(range(6))
    assert {line["staleness_max"] for line in lines} == {0, 1}
    # They were written by older weights, so the ratios are not all one.
    assert max(line["kl_to_sampler"] for line in lines) > 1e-6
    assert sum(line["dropped_groups"] for line in lines) == 0
  assert len(asked(whole)) == 6 * 4 * 4 and asked(killed) == asked(whole)


@pytest.mark.integration
def test_a_corrupt_checkpoint_is_told_and_the_one_before_it_is_used(
    program, uninterrupted, tmp_path):
  workdir = tmp_path / "run"
  shutil.copytree(uninterrupted, workdir)
  before = metrics(workdir), arrays(workdir, "grpo", 6)
  largest = max((workdir / "checkpoints" / "grpo" / "6" / "state").rglob("*"),
                key=lambda path: path.stat().st_size if path.is_file() else 0)
  content = bytearray(largest.read_bytes())
  content[len(content) // 2] ^= 0xFF
  largest.write_bytes(content)
  again = program.run(workdir, *SMALL)
  assert again.returncode == 0, again.stderr
  assert "checkpoints/grpo/6 is corrupt" in again.stdout
  assert "GRPO: resuming after step 4" in again.stdout
  after = arrays(workdir, "grpo", 6)
  assert before[0] == metrics(workdir)
  assert all(np.array_equal(value, after[name]) for name, value in before[1].items())


def contents(folder: Path) -> dict[str, bytes]:
  return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_work_directory_of_another_config_is_refused_and_left_alone(program, uninterrupted):
  before = contents(uninterrupted)
  done = program.run(uninterrupted, *SMALL, "--config.grpo.clip_low=0.3")
  assert done.returncode == 2
  assert done.stderr.strip().splitlines()[-1] == (
      f"error: {uninterrupted} belongs to a run with grpo.clip_low=0.2, not 0.3: take another "
      "--workdir, or --config.grpo.clip_low=0.2")
  assert contents(uninterrupted) == before


def test_a_taken_port_is_one_line_and_no_work_directory(program, tmp_path, unused_tcp_port):
  with socket.create_server(("127.0.0.1", unused_tcp_port)):
    done = program.run(tmp_path / "run", *SMALL, f"--config.pool.port={unused_tcp_port}")
  assert done.returncode == 2
  line = done.stderr.strip().splitlines()[-1]
  assert line.startswith("error: ") and str(unused_tcp_port) in line and "taken" in line
  assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("option", "named"), [
    ("--config.grpo.groupsize=4", "groupsize"),
    ("--config.grpo.group_size=many", "group_size"),
])
def test_a_wrong_key_or_type_is_named_before_anything_is_loaded(program, tmp_path, option, named):
  done = program.run(tmp_path / "run", option)
  assert done.returncode != 0 and named in done.stderr
  assert not (tmp_path / "run").exists()


def test_devices_without_a_variant_are_one_line_and_status_2(program, tmp_path):
  done = program.run(tmp_path / "run", config="configs/conductor7b.py:v9")
  assert (done.returncode, done.stdout) == (2, "")
  line, = done.stderr.splitlines()
  assert line.startswith("error: --config=configs/conductor7b.py:v9: after the colon must be one")
  assert not (tmp_path / "run").exists()


@pytest.mark.integration
def test_the_warm_start_alone_is_where_training_goes_on(program, uninterrupted, warm_start):
  workdir, _ = warm_start
  assert recorded(workdir, "sft") == 30 and recorded(workdir, "grpo") == 0
  done = program.run(workdir, *SMALL)
  assert "warm start: resuming after step 30" in done.stdout
  assert_same_run(uninterrupted, workdir)


def grpo_metrics(workdir: Path) -> list[dict]:
  return [line for line in metrics(workdir) if line["phase"] == "grpo"]


@pytest.mark.integration
def test_a_run_from_an_exported_policy_learns_what_the_run_that_wrote_it_does(
    program, uninterrupted, warm_start, tmp_path):
  # Shape, weights and tokenizer come from the folder: those of the options are others.
  workdir = tmp_path / "run"
  done = program.run(
      workdir, *SMALL[5:], f"--config.model.weights={warm_start[1]}", "--config.sft.steps=0",
      "--config.tokenizer.vocab_size=300")
  assert done.returncode == 0, done.stderr
  assert recorded(workdir, "sft") == 0
  assert grpo_metrics(workdir) == grpo_metrics(uninterrupted)


@pytest.mark.integration
def test_an_export_has_the_tokenizer_of_its_run(warm_start):
  run, policy = (load_tokenizer(path) for path in (warm_start[0] / "tokenizer", warm_start[1]))
  assert run.chat_template == policy.chat_template
  assert run.get_vocab() == policy.get_vocab()
  config = json.loads((warm_start[1] / "config.json").read_text())
  assert config["eos_token_id"] == run.eos_token_id == policy.eos_token_id
  text = run.apply_chat_template([{"role": "user", "content": "Who is 7?"}], tokenize=False)
  assert run.encode(text) == policy.encode(text)


@pytest.mark.integration
def test_a_merged_export_is_the_weights_and_the_product_of_the_exported_adapters(
    warm_start, adapted, tmp_path):
  export_run(adapted, tmp_path / "adapters")
  export_run(adapted, tmp_path / "merged", merge=True)
  config = json.loads((tmp_path / "adapters" / "adapter_config.json").read_text())
  assert (config["r"], config["lora_alpha"]) == (4, 8)
  assert config["base_model_name_or_path"] == str(warm_start[1])
  adapters = load_file(tmp_path / "adapters" / "adapter_model.safetensors")
  base = load_file(warm_start[1] / "model.safetensors")
  merged = load_file(tmp_path / "merged" / "model.safetensors")
  assert merged.keys() == base.keys()
  changed = 0
  for name, weight in base.items():
    pair = [f"base_model.model.{name.removesuffix('.weight')}.lora_{part}.weight" for part in "AB"]
    if pair[0] in adapters:
      a, b = (adapters.pop(key) for key in pair)
      product = 8 / 4 * b @ a
      assert np.abs(product).max() > 1e-3
      weight = weight + product
      changed += 1
    np.testing.assert_allclose(merged[name], weight, rtol=0, atol=1e-6, err_msg=name)
  assert changed == 7 * 2 and not adapters
  assert load_tokenizer(tmp_path / "merged").chat_template == load_tokenizer(
      warm_start[1]).chat_template


@pytest.mark.integration
def test_the_entropy_coefficient_is_steered_from_one_iteration_to_the_next(adapted):
  # Below the target at every iteration, so it rises by its rate.
  coefficients = [line["entropy_coefficient"] for line in grpo_metrics(adapted)]
  np.testing.assert_allclose(coefficients, 0.02 + 0.005 * np.arange(6), rtol=1e-5)


@pytest.mark.integration
def test_rows_of_a_group_repeat_its_prompt_and_train_on_the_same_completions(
    uninterrupted, adapted):
  # The first iteration is sampled from the same policy: its adapters change nothing yet.
  whole, split = grpo_metrics(uninterrupted)[0], grpo_metrics(adapted)[0]
  for name in ("reward", "completion_tokens", "parse_rate"):
    assert split[name] == whole[name]
  assert math.isclose(split["entropy"], whole["entropy"], rel_tol=1e-5)


@pytest.mark.integration
def test_a_run_without_a_checkpoint_is_not_exported(adapted, tmp_path):
  (tmp_path / "run").mkdir()
  with pytest.raises(UserError, match="--workdir=.*: there is no run in it, it has no config.json"):
    export_run(tmp_path / "run", tmp_path / "policy")
  (tmp_path / "run" / "config.json").write_bytes((adapted / "config.json").read_bytes())
  # The folder of a phase that has begun.
  (tmp_path / "run" / "checkpoints" / "grpo").mkdir(parents=True)
  with pytest.raises(UserError, match="has no checkpoint yet: export when the run has written one"):
    export_run(tmp_path / "run", tmp_path / "policy")
  assert not (tmp_path / "policy").exists()


@pytest.mark.integration
def test_where_grpo_has_no_checkpoint_yet_the_warm_start_is_exported(warm_start, tmp_path):
  workdir = tmp_path / "run"
  shutil.copytree(warm_start[0], workdir, ignore=lambda path, names: {"grpo"} & set(names))
  (workdir / "checkpoints" / "grpo").mkdir()
  export_run(workdir, tmp_path / "policy")
  assert contents(tmp_path / "policy") == contents(warm_start[1])


@pytest.mark.integration
def test_an_export_to_a_folder_with_files_is_one_line_and_status_2(program, adapted):
  before = contents(adapted)
  done = program.run(adapted, f"--output={adapted}", config=None, module="experiments.export")
  assert (done.returncode, done.stdout) == (2, "")
  assert done.stderr == (
      f"error: --output={adapted} exists: remove it, or name another folder to write to\n")
  assert contents(adapted) == before


@pytest.mark.parametrize("damage", ["no folder", "another shape"])
def test_unusable_weights_are_one_line_and_no_work_directory(
    program, warm_start, tmp_path, damage):
  weights = tmp_path / "weights"
  if damage == "another shape":
    shutil.copytree(warm_start[1], weights)
    values = json.loads((weights / "config.json").read_text())
    (weights / "config.json").write_text(json.dumps(values | {"intermediate_size": 128}))
  done = program.run(tmp_path / "run", *SMALL, f"--config.model.weights={weights}")
  assert done.returncode == 2
  line = done.stderr.strip().splitlines()[-1]
  assert line.startswith("error: ") and str(weights) in line
  assert ("name a folder" if damage == "no folder" else "is [64, 32], not [128, 32]") in line
  assert "Traceback" not in done.stderr
  assert not (tmp_path / "run").exists()
