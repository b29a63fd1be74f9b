"""GRPO's batches: rollouts collected on the event loop, packed where the trainer runs."""

import time
from concurrent.futures import Future
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from conductor_jax.errors import OutOfBudget, UserError
from conductor_jax.reporting.metrics import RolloutLog
from conductor_jax.rollout_metrics import rollout_metrics
from conductor_jax.rollouts import Conductor, Rollout, RolloutGroup
from conductor_jax.sampling.sampler import Sampler
from conductor_jax.tasks.pipeline import task_order
from conductor_jax.training.advantages import drop_zero_variance, group_advantages
from conductor_jax.training.batch import LATER_PROMPT_MULTIPLE, Batches, Group, pack, padding_share
from conductor_jax.training.logprobs import Params
from conductor_jax.training.pipeline import Pipeline
from experiments.policy import Policy
from experiments.run import Run

# Keep the random choices of rollouts apart from each other and from everything else.
_SEEDS, _OFFERS, _ROUNDS = 101, 102, 103


class Rollouts:
  """What `Phase` needs of rollouts: batches, new weights for the sampler, and a record.

  Called from the trainer's thread; sampling, executing and loading go on in the run's event loop.

  Args:
    run: the run.
    policy: whose trained parameters are published.
    conductor: samples plans and runs them.
    sampler: the conductor's.
  """

  def __init__(self, run: Run, policy: Policy, conductor: Conductor, sampler: Sampler):
    config = run.config
    self._run, self._policy, self._sampler = run, policy, sampler
    self._tasks = task_order(
        run.splits.train, config.seed + 1, balanced=config.tasks.balanced)
    self._log = RolloutLog(run.workdir)
    self._loading: Future | None = None

    async def collect(number: int) -> RolloutGroup:
      return await conductor.roll_out(
          self._tasks[number], _seeds(config, number),
          run.offers.training.draw(np.random.default_rng([config.seed, _OFFERS, number])),
          recursive=_is_recursive(config, number))

    self._pipeline = Pipeline(
        collect, sampler.load, groups=config.grpo.prompts, steps=config.grpo.iterations,
        max_staleness=config.rollout.max_staleness, extra=config.rollout.extra_groups)

  def publish(self, params: Params, version: int) -> None:
    """Hands new weights to the sampler, which loads them while the trainer goes on.

    Raises:
      Whatever the loading of the version before raised.
    """
    # Never more than two versions exist.
    self.wait_for_weights()
    self._sampler.stage(self._policy.whole(params), version)
    self._loading = self._run.portal.start_task_soon(self._pipeline.advance, version)

  def wait_for_weights(self) -> None:
    """Returns when the sampler has the weights that were published last."""
    if self._loading is not None:
      self._loading.result()

  def start(self, step: int, record: dict[str, Any]) -> None:
    """Begins to collect for `step` and those after it; `record` as in `Pipeline.start`."""
    self._run.portal.call(self._pipeline.start, step, record)

  def record(self) -> dict[str, Any]:
    """What `start` needs to go on from here; JSON types."""
    return self._run.portal.call(self._pipeline.record)

  def close(self) -> None:
    """Ends what is being collected."""
    self._run.portal.call(self._pipeline.close)

  def batch(self, iteration: int) -> tuple[Batches, dict[str, float]]:
    """The batches of an iteration, one a round, and what is to be reported about them."""
    config, portal = self._run.config, self._run.portal
    began = time.perf_counter()
    try:
      taken = portal.call(self._pipeline.take, iteration)
    except OutOfBudget:
      # What is under way is paid for, and its answers are in the journal when it has ended.
      portal.call(self._pipeline.drain)
      raise
    if not config.rollout.max_staleness:
      portal.call(self._sampler.rest)
    waited = time.perf_counter() - began
    rounds = [group.rounds for group in taken.groups]
    _refuse_without_rewards(rounds, iteration)
    if iteration % config.report.rollouts_every == 0 or iteration + 1 == config.grpo.iterations:
      self._log.write(iteration, [
          rollout.to_json() for group in rounds for each in group for rollout in each])
    packed = _pack(config, rounds, pad=self._run.chat.tokenizer.eos_token_id)
    names = [worker.name for worker in self._run.executor.pool.workers]
    return packed, {
        **rollout_metrics(rounds, names), "padding_share": padding_share(packed),
        "staleness": float(np.mean(taken.staleness)), "staleness_max": max(taken.staleness),
        "dropped_groups": taken.dropped,
        "seconds_sampling": float(np.mean([group.seconds_sampling for group in taken.groups])),
        "seconds_executing": float(np.mean([group.seconds_executing for group in taken.groups])),
        "seconds_waiting": waited}


def _seeds(config: ConfigDict, number: int) -> np.ndarray:
  return np.random.SeedSequence([config.seed, _SEEDS, number]).generate_state(
      config.grpo.group_size)


def _is_recursive(config: ConfigDict, number: int) -> bool:
  """Whether a group has a second round: as many of every iteration, drawn anew for each."""
  prompts = config.grpo.prompts
  iteration, place = divmod(number, prompts)
  order = np.random.default_rng([config.seed, _ROUNDS, iteration]).permutation(prompts)
  return bool(order[place] < round(config.grpo.recursion.share * prompts))


def _pack(config: ConfigDict, rounds: list[list[list[Rollout]]], pad: int) -> Batches:
  """A batch of the first rounds, and one of the second ones where there are any.

  A row of the second batch is one rollout, for no other one has its prompt. Where a first rollout
  has none after it the row is blank, so that the batch is always of the same size.

  Args:
    config: the options.
    rounds: of each question, the rollouts of its rounds.
    pad: token id that fills the gaps.
  """
  first, later, rows = [], [], 0
  for question in rounds:
    taught = _advantages(question, config.grpo)
    first.append(_group(question[0], *taught[0]))
    for rollouts, (advantages, accepted) in zip(question[1:], taught[1:], strict=True):
      later += [_group([rollout], advantages[i:i + 1], accepted[i:i + 1])
                for i, rollout in enumerate(rollouts)]
      rows += len(question[0])
  packed = pack(first, pad=pad, samples_per_row=config.grpo.samples_per_row)
  if not rows:
    return (packed,)
  blank = Group([pad], [np.zeros(1, np.int32)], [np.zeros(1, np.float32)], np.zeros(1),
                np.zeros(1, bool))
  return packed, pack([*later, *[blank] * (rows - len(later))], pad=pad,
                      prompt_multiple=LATER_PROMPT_MULTIPLE)


def _advantages(
    rounds: list[list[Rollout]], grpo: ConfigDict) -> list[tuple[np.ndarray, np.ndarray]]:
  """Of each round of a question, advantages and which rollouts count."""
  together = grpo.recursion.group == "question"
  found = []
  for rollouts in [sum(rounds, [])] if together else rounds:
    rewards = np.array([rollout.reward or 0.0 for rollout in rollouts])
    accepted = np.array([rollout.reward is not None for rollout in rollouts], bool)
    advantages = group_advantages(rewards, accepted, grpo.advantage)
    if grpo.drop_zero_variance:
      accepted = drop_zero_variance(rewards, accepted)
    found.append((advantages, accepted))
  if not together:
    return found
  ends = np.cumsum([len(rollouts) for rollouts in rounds])[:-1]
  return list(zip(*(np.split(values, ends) for values in found[0]), strict=True))


def _group(rollouts: list[Rollout], advantages: np.ndarray, accepted: np.ndarray) -> Group:
  return Group(
      prompt_tokens=rollouts[0].turn.prompt_tokens,
      completion_tokens=[rollout.completion_tokens for rollout in rollouts],
      sampler_logprobs=[rollout.sampler_logprobs for rollout in rollouts],
      advantages=advantages, accepted=accepted)


def _refuse_without_rewards(rounds: list[list[list[Rollout]]], iteration: int) -> None:
  """Stops a run whose workers are all out of reach, before it trains on nothing."""
  rollouts = [rollout for question in rounds for each in question for rollout in each]
  if any(rollout.reward is not None for rollout in rollouts):
    return
  faults = [call.error for rollout in rollouts if rollout.transcript
            for call in rollout.transcript.calls if call.outcome == "unavailable"]
  raise UserError(
      f"iteration {iteration + 1}: every rollout was rejected, the last because "
      f"{faults[-1] if faults else 'its grader failed'}: mend it, then run the same command to go "
      "on from the last checkpoint")
