import json
import os
import signal

import pytest

from conductor_jax.errors import UserError
from configs import quickstart
from experiments.workdir import StopSignals, check_claim, claim


def test_a_claimed_work_directory_is_known_again(tmp_path):
  workdir = tmp_path / "runs" / "one"
  assert not claim(workdir, quickstart.get_config())
  assert json.loads((workdir / "config.json").read_text())["grpo"]["clip_low"] == 0.2
  assert claim(workdir, quickstart.get_config())


def test_another_config_is_refused_with_the_key_that_differs(tmp_path):
  claim(tmp_path, quickstart.get_config())
  other = quickstart.get_config()
  other.sft.steps = 3
  with pytest.raises(UserError, match=r"a run with sft.steps=300, not 3: take another --workdir"):
    check_claim(tmp_path, other)


def test_a_budget_may_be_raised_from_one_session_to_the_next_and_is_recorded(tmp_path):
  config = quickstart.get_config()
  config.pool.budget.dollars = 5.0
  claim(tmp_path, config)
  config.pool.budget.dollars = 10.0
  assert check_claim(tmp_path, config)
  assert claim(tmp_path, config)
  assert json.loads((tmp_path / "config.json").read_text())["pool"]["budget"]["dollars"] == 10.0


def test_looking_leaves_no_trace(tmp_path):
  assert not check_claim(tmp_path / "new", quickstart.get_config())
  assert not (tmp_path / "new").exists()


def test_a_config_record_that_is_not_json_is_named(tmp_path):
  (tmp_path / "config.json").write_text("{")
  with pytest.raises(UserError, match="config.json is not JSON"):
    claim(tmp_path, quickstart.get_config())


def test_a_work_directory_that_is_a_file_is_refused(tmp_path):
  (tmp_path / "file").write_text("")
  with pytest.raises(UserError, match="cannot be used"):
    claim(tmp_path / "file", quickstart.get_config())


def test_a_first_signal_is_noted_and_a_second_acts_as_usual():
  before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
  try:
    stop = StopSignals()
    assert not stop()
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop() and stop.received == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
  finally:
    for number, handler in before.items():
      signal.signal(number, handler)
