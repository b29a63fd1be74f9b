"""The configured sampler, and the conductor that writes plans with it."""

import contextlib
from collections.abc import Iterator

from conductor_jax.rewards import RewardValues
from conductor_jax.rollouts import Conductor
from conductor_jax.sampling.jax_sampler import JaxSampler
from conductor_jax.sampling.sampler import Sampler
from conductor_jax.tasks.graders import Graders
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


def make_conductor(run: Run, sampler: Sampler, graders: Graders) -> Conductor:
  """The conductor of a run, with all workers of its pool on offer."""
  config = run.config
  return Conductor(
      sampler=sampler, tokenizer=run.chat.tokenizer, executor=run.executor, graders=graders,
      reward_values=RewardValues(**config.reward), max_steps=config.workflow.max_steps,
      access=config.workflow.access, temperature=config.rollout.temperature)
