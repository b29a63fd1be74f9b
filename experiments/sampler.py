"""The configured sampler."""

import contextlib
from collections.abc import Iterator

from conductor_jax.sampling.jax_sampler import JaxSampler
from conductor_jax.sampling.sampler import Sampler
from experiments.policy import Policy
from experiments.run import Run


@contextlib.contextmanager
def open_sampler(run: Run, policy: Policy) -> Iterator[Sampler]:
  """A sampler of the policy's plans, without weights yet."""
  config = run.config
  rollout, eos = config.rollout, run.chat.tokenizer.eos_token_id
  yield JaxSampler(
      policy.graph, max_tokens=rollout.max_completion_tokens, max_prompt=rollout.max_prompt_tokens,
      eos=eos, rows=config.grpo.prompts, copies=rollout.max_staleness > 0)
