"""The files a run leaves: what a resumed run keeps, and what a crash cannot tear."""

import gzip
import json
import math
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

from conductor_jax.errors import UserError
from conductor_jax.reporting.metrics import (
    MetricsWriter,
    RolloutLog,
    atomic_file,
    read_metrics,
    write_summary,
)


def scalars_shown(folder: Path) -> list[tuple[int, str, float]]:
  """What TensorBoard shows of a run: its files in name order, restarts applied."""
  shown = []
  for path in sorted(folder.iterdir()):
    data = path.read_bytes()
    while data:
      (length,) = struct.unpack("<Q", data[:8])
      event = Event.FromString(data[12 : 12 + length])
      data = data[16 + length :]
      if event.HasField("session_log"):
        shown = [row for row in shown if row[0] < event.step]
      shown += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
  return shown


def test_a_step_is_one_line_with_its_phase_and_values(tmp_path):
  with MetricsWriter(tmp_path, resume_at={}) as writer:
    writer.write("sft", 0, {"loss": 2.5})
    writer.write("grpo", 0, {"reward": 0.5, "accuracy/words": 0.25})
  assert (tmp_path / "metrics.jsonl").read_text() == (
      '{"phase": "sft", "step": 0, "loss": 2.5}\n'
      '{"phase": "grpo", "step": 0, "reward": 0.5, "accuracy/words": 0.25}\n')


def test_array_scalars_of_numpy_and_jax_are_written_as_numbers(tmp_path):
  with MetricsWriter(tmp_path, resume_at={}) as writer:
    writer.write("grpo", np.int64(3), {"a": np.float32(0.5), "b": jnp.float32(2.0), "c": 7})
  [record] = read_metrics(tmp_path / "metrics.jsonl")
  assert record == {"phase": "grpo", "step": 3, "a": 0.5, "b": 2.0, "c": 7.0}


def test_nan_and_infinities_are_null(tmp_path):
  with MetricsWriter(tmp_path, resume_at={}) as writer:
    writer.write("grpo", 0, {"loss": math.nan, "kl": math.inf, "reward": -math.inf})
  assert "null" in (tmp_path / "metrics.jsonl").read_text()
  [record] = read_metrics(tmp_path / "metrics.jsonl")
  assert (record["loss"], record["kl"], record["reward"]) == (None, None, None)


def test_a_value_there_is_none_of_is_null_and_not_in_tensorboard(tmp_path):
  with MetricsWriter(tmp_path, resume_at={}) as writer:
    writer.write("grpo", 0, {"accuracy/words": None, "reward": 0.5})
  [record] = read_metrics(tmp_path / "metrics.jsonl")
  assert record["accuracy/words"] is None
  assert scalars_shown(tmp_path / "events/grpo") == [(0, "reward", 0.5)]


@pytest.mark.parametrize("name", ["phase", "step"])
def test_a_metric_named_like_a_column_is_refused(tmp_path, name):
  with (
      MetricsWriter(tmp_path, resume_at={}) as writer,
      pytest.raises(ValueError, match=f"'{name}'"),
  ):
    writer.write("grpo", 0, {name: 1.0})


def test_a_resumed_run_leaves_the_lines_of_an_uninterrupted_one(tmp_path):
  def run(workdir, resume_at, grpo_steps):
    with MetricsWriter(workdir, resume_at=resume_at) as writer:
      if not resume_at:
        for step in range(4):
          writer.write("sft", step, {"loss": 4.0 - step})
      for step in grpo_steps:
        writer.write("grpo", step, {"reward": step / 8})

  run(tmp_path / "whole", {}, range(6))
  run(tmp_path / "resumed", {}, range(5))
  with (tmp_path / "resumed/metrics.jsonl").open("a") as file:
    file.write('{"phase": "grpo", "st')
  run(tmp_path / "resumed", {"sft": 4, "grpo": 3}, range(3, 6))

  whole = (tmp_path / "whole/metrics.jsonl").read_bytes()
  assert (tmp_path / "resumed/metrics.jsonl").read_bytes() == whole
  for phase in ("sft", "grpo"):
    expected = scalars_shown(tmp_path / "whole/events" / phase)
    assert len(expected) == {"sft": 4, "grpo": 6}[phase]
    assert scalars_shown(tmp_path / "resumed/events" / phase) == expected


def test_a_run_started_again_from_nothing_drops_every_earlier_line(tmp_path):
  for value in (1.0, 2.0):
    with MetricsWriter(tmp_path, resume_at={}) as writer:
      writer.write("sft", 0, {"loss": value})
  assert read_metrics(tmp_path / "metrics.jsonl") == [{"phase": "sft", "step": 0, "loss": 2.0}]
  assert scalars_shown(tmp_path / "events/sft") == [(0, "loss", 2.0)]


def test_a_killed_writer_has_lost_no_finished_step(tmp_path):
  program = (
      "import sys, time\n"
      "from conductor_jax.reporting.metrics import MetricsWriter\n"
      f"writer = MetricsWriter({str(tmp_path)!r}, resume_at={{}})\n"
      "for step in range(20):\n"
      "  writer.write('grpo', step, {'reward': step / 32})\n"
      "print('written', flush=True)\n"
      "time.sleep(60)\n")
  child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
  assert child.stdout.readline() == b"written\n"
  os.kill(child.pid, signal.SIGKILL)
  child.wait()
  child.stdout.close()
  assert [r["step"] for r in read_metrics(tmp_path / "metrics.jsonl")] == list(range(20))
  expected = [(step, "reward", step / 32) for step in range(20)]
  assert scalars_shown(tmp_path / "events/grpo") == expected


def test_a_torn_last_line_is_not_read(tmp_path):
  path = tmp_path / "metrics.jsonl"
  path.write_text('{"phase": "sft", "step": 0}\n{"phase": "sft", "ste')
  assert read_metrics(path) == [{"phase": "sft", "step": 0}]


def test_a_broken_line_in_the_middle_is_named(tmp_path):
  path = tmp_path / "metrics.jsonl"
  path.write_text('{"phase": "sft", "step": 0}\nnot json\n{"phase": "sft", "step": 1}\n')
  with pytest.raises(UserError, match="line 2"):
    read_metrics(path)


def test_no_file_holds_no_metrics(tmp_path):
  assert read_metrics(tmp_path / "metrics.jsonl") == []


def test_a_failed_atomic_write_keeps_the_old_content_and_leaves_no_other_file(tmp_path):
  path = tmp_path / "a.json"
  path.write_text("old")
  with pytest.raises(RuntimeError, match="disk"), atomic_file(path) as file:
    file.write(b"half of the ne")
    raise RuntimeError("disk")
  assert path.read_text() == "old"
  assert list(tmp_path.iterdir()) == [path]


def test_the_summary_is_json_with_null_for_nan(tmp_path):
  path = write_summary(tmp_path, {"heldout": {"after_rl": {"accuracy": np.float32(0.5)}},
                                  "seconds": math.nan, "kinds": ("words",)})
  assert path == tmp_path / "summary.json"
  assert json.loads(path.read_text()) == {
      "heldout": {"after_rl": {"accuracy": 0.5}}, "seconds": None, "kinds": ["words"]}


def test_rollouts_come_back_in_order_and_in_full(tmp_path):
  rows = [{"completion": "é \ud800 <answer>", "reward": None, "calls": []}, {"completion": "\n"}]
  log = RolloutLog(tmp_path)
  path = log.write(12, iter(rows))
  assert path == tmp_path / "rollouts/000012.jsonl.gz"
  assert log.read(12) == rows
  with gzip.open(path) as file:
    assert len(file.readlines()) == 2


def test_the_same_rollouts_give_the_same_bytes(tmp_path):
  first = RolloutLog(tmp_path / "a").write(3, [{"reward": 0.5}]).read_bytes()
  assert RolloutLog(tmp_path / "b").write(3, [{"reward": 0.5}]).read_bytes() == first


def test_iterations_are_listed_in_order_without_foreign_files(tmp_path):
  log = RolloutLog(tmp_path)
  assert log.iterations() == []
  for iteration in (10, 9, 1_000_000):
    log.write(iteration, [])
  (tmp_path / "rollouts/.000011.jsonl.gz.tmp").write_bytes(b"left by a crash")
  assert log.iterations() == [9, 10, 1_000_000]


def test_rollouts_that_cannot_be_written_leave_no_file(tmp_path):
  log = RolloutLog(tmp_path)
  with pytest.raises(TypeError):
    log.write(0, [{"reward": 1.0}, {"task": object()}])
  assert log.iterations() == []


def test_rollouts_of_an_absent_iteration_are_a_named_fault(tmp_path):
  with pytest.raises(UserError, match="iteration 7"):
    RolloutLog(tmp_path).read(7)
