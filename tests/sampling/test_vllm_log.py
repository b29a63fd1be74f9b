"""Excerpts of what vLLM 0.32 really wrote when it could not start."""

import pytest

from conductor_jax.sampling.vllm_log import (
    cause_of_death,
    last_line,
    port_was_taken,
    without_vllm,
)

ENGINE = """
(EngineCore pid=4498) ERROR 11-29 22:53:04 [core.py:1510]     raise e from None
(EngineCore pid=4498) ERROR 11-29 22:53:04 [core.py:1510] Exception: WorkerProc initialization \
failed due to an exception in a background process. See stack trace for root cause.
Traceback (most recent call last):
  File "vllm/v1/engine/utils.py", line 1431, in wait_for_engine_startup
    raise RuntimeError(
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 1 leaked
  warnings.warn('resource_tracker: There appear to be %d '
"""


def test_the_workers_exception_is_found_above_what_its_parents_raise():
  worker = """(Worker pid=4068) INFO 11-29 22:51:40 [cpu_model_runner.py:80] Starting to load model
(Worker pid=4068) ERROR 11-29 22:51:45 [executor.py:953] Traceback (most recent call last):
(Worker pid=4068) ERROR 11-29 22:51:45 [executor.py:953]   File "loader.py", line 228, in x
(Worker pid=4068) ERROR 11-29 22:51:45 [executor.py:953]     raise RuntimeError(
(Worker pid=4068) ERROR 11-29 22:51:45 [executor.py:953] RuntimeError: Cannot find any \
model weights with `weights/step-1`
"""
  assert cause_of_death(worker + ENGINE) == (
      "RuntimeError: Cannot find any model weights with `weights/step-1`")


def test_an_exception_without_a_message_is_shown_with_its_statement():
  worker = """
(Worker pid=4567) ERROR 11-29 22:52:59 [executor.py:953]     weight_loader(param, data)
(Worker pid=4567) ERROR 11-29 22:52:59 [executor.py:953]   File "vllm/x.py", line 515, in y
(Worker pid=4567) ERROR 11-29 22:52:59 [executor.py:953]     assert shape == vocab_size
(Worker pid=4567) ERROR 11-29 22:52:59 [executor.py:953]            ^^^^^^^^^^^^^^^^^^^
(Worker pid=4567) ERROR 11-29 22:52:59 [executor.py:953] AssertionError
"""
  assert cause_of_death(worker + ENGINE) == (
      'File "vllm/x.py", line 515, in y assert shape == vocab_size AssertionError')


def test_a_message_may_go_on_in_indented_lines_and_loses_the_validators_noise():
  text = """
    s.__pydantic_validator__.validate_python(ArgsKwargs(args, kwargs), self_instance=s)
pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
  Value error, User-specified max_model_len (100000) is greater than the derived max_model_len \
[type=value_error, input_value=ArgsKwargs((), {'model': ...}), input_type=ArgsKwargs]
    For further information visit https://errors.pydantic.dev/2.14/v/value_error
"""
  assert cause_of_death(text) == (
      "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig Value "
      "error, User-specified max_model_len (100000) is greater than the derived max_model_len")


def test_a_refused_command_line_is_a_cause():
  text = "usage: api_server.py [-h]\n                     [model_tag]\n"
  error = "api_server.py: error: unrecognized arguments: --no-such-flag"
  assert cause_of_death(text + error + "\n") == error


def test_the_last_lines_stand_in_for_a_cause():
  text = "\n".join(f"(APIServer pid=7) INFO 11-29 22:52:13 [model.py:733] line {i}"
                   for i in range(9))
  assert cause_of_death(text) == "line 4 | line 5 | line 6 | line 7 | line 8"
  assert cause_of_death("") == "it wrote nothing"


def test_a_cause_is_one_line_of_bounded_length():
  cause = cause_of_death("ValueError: " + "long " * 1000)
  assert len(cause) == 504
  assert cause.endswith(" ...")


def test_words_about_errors_are_no_exceptions():
  text = "(APIServer pid=7) ERROR 11-29 22:52:13 [serving.py:9] Error with model x: y\nlast\n"
  assert cause_of_death(text) == "Error with model x: y | last"


def test_the_last_line_has_neither_time_nor_origin():
  text = ("(EngineCore pid=1) INFO 11-29 22:36:52 [loader.py:185] Loading weights took 2 s\n"
          "vllm/x.py:51: DeprecationWarning: do not\n  warnings.warn(\n\n")
  assert last_line(text) == "vllm/x.py:51: DeprecationWarning: do not"
  assert last_line(text.partition("vllm/x.py")[0]) == "Loading weights took 2 s"
  assert last_line("\tcore ids=[1]\n") == "core ids=[1]"
  assert last_line("") == "it has written nothing"


@pytest.mark.parametrize("text", [
    "OSError: [Errno 98] Address already in use",
    "OSError: [Errno 98] error while attempting to bind on address ('127.0.0.1', 8000): address "
    "already in use"])
def test_a_taken_port_is_recognised(text):
  assert port_was_taken(text)
  assert not port_was_taken("OSError: [Errno 24] Too many open files")


@pytest.mark.parametrize("text", [
    "/usr/bin/python3: Error while finding module specification for "
    "'vllm.entrypoints.openai.api_server' (ModuleNotFoundError: No module named 'vllm')",
    "/usr/bin/python3: No module named vllm"])
def test_an_interpreter_without_vllm_is_recognised(text):
  assert without_vllm(text)
  assert not without_vllm("ModuleNotFoundError: No module named 'vllmx'")
