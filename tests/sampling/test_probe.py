"""What a probe sees of a server's weights, and what rounding hides from it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conductor_jax.sampling.probe import Answers, make_probe
from tests.sampling.tiny_policy import CONFIG, PROBE_TOKENS, moved, params, trainer_logprobs


class Whole:
  """A completion of all tokens but the first."""

  tokens = np.array(PROBE_TOKENS[1:])


def test_it_is_the_trainers_log_probability_of_every_token_after_the_first():
  logprobs = make_probe(CONFIG, PROBE_TOKENS, "float32").logprobs(params())
  assert logprobs.shape == (7,) and logprobs.dtype == np.float32
  np.testing.assert_allclose(
      logprobs, trainer_logprobs(params(), PROBE_TOKENS[:1], Whole), rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_it_rounds_the_parameters_as_they_are_exported(dtype):
  exported = jax.tree.map(lambda x: jnp.asarray(np.asarray(x).astype(dtype), jnp.float32), params())
  rounded = make_probe(CONFIG, PROBE_TOKENS, dtype).logprobs(params())
  plain = make_probe(CONFIG, PROBE_TOKENS, "float32")
  np.testing.assert_allclose(rounded, plain.logprobs(exported), rtol=0, atol=5e-5)
  assert np.abs(rounded - plain.logprobs(params())).max() > 2e-4


def test_rounding_is_tolerated_and_other_weights_are_not():
  expected = np.array([-1.0, -3.0, -3.0, -9.0], np.float32)
  answers = Answers("bfloat16", 1)
  # A tenth of 2 and of 10: what is unlikely may be off by more.
  noise = np.array([0.19, 0.0, 0.0, -1.9], np.float32)
  assert answers.objection(expected + noise, expected, reloaded=True) is None
  assert "off by 10.25% on average, and rounding explains 10.00% at most" in answers.objection(
      expected + np.array([0.82, 0, 0, 0], np.float32), expected, reloaded=True)
  assert Answers("float32", 1).objection(expected + noise, expected, reloaded=True) is not None
  assert "off by nan%" in answers.objection(expected * np.nan, expected, reloaded=True)


def test_what_stands_before_is_not_compared_but_must_change_with_the_weights():
  expected = np.array([-9.0, -8.0, -1.0, -2.0], np.float32)
  answer = expected + np.array([3.0, -3.0, 0.0, 0.0], np.float32)
  answers = Answers("bfloat16", 3)
  assert answers.objection(answer, expected, reloaded=True) is None
  assert Answers("bfloat16", 2).objection(answer, expected, reloaded=True) is not None
  answers.keep(answer, expected)
  moved_before = expected + np.array([0.01, 0.0, 0.0, 0.0], np.float32)
  assert "bit for bit" in answers.objection(answer, moved_before, reloaded=True)
  moved_too = answer + np.array([0.01, 0.0, 0.0, 0.0], np.float32)
  assert answers.objection(moved_too, moved_before, reloaded=True) is None


def test_the_same_answer_to_other_weights_is_refused_from_a_server_that_had_the_first():
  first = np.array([-1.0, -2.0], np.float32)
  moved_a_little, answer = first + np.float32(3e-4), first + np.float32(0.01)
  answers = Answers("bfloat16", 1)
  answers.keep(answer, first)
  answers.keep(answer + np.float32(1e-3), first - np.float32(1e-3))
  objection = answers.objection(answer, moved_a_little, reloaded=True)
  assert "bit for bit" in objection and "moved by 0.0003 on average" in objection
  assert answers.objection(answer, moved_a_little, reloaded=False) is None
  assert answers.objection(np.nextafter(answer, 0), moved_a_little, reloaded=True) is None
  # Weights that are the same when they are rounded.
  assert answers.objection(answer, first + np.float32(5e-5), reloaded=True) is None


def test_a_small_step_moves_the_trainers_probe_by_more_than_what_counts_as_none():
  probe = make_probe(CONFIG, PROBE_TOKENS, "float32")
  difference = np.mean(np.abs(probe.logprobs(moved(2e-4)) - probe.logprobs(params())))
  assert 1e-4 < difference < 0.005
