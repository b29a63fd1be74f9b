"""The road from tasks to rollouts: prompt, sample, parse, execute, grade, reward."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from conductor_jax.rewards import RewardValues, reward
from conductor_jax.sampling.sampler import Completion, Sampler
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Grade, Task
from conductor_jax.workflows.executor import Executor
from conductor_jax.workflows.grading import run_and_grade
from conductor_jax.workflows.lists import Access, parse_lists
from conductor_jax.workflows.plan_metrics import (
    access_density,
    mean,
    steps_per_plan,
    worker_entropy_bits,
    worker_shares,
)
from conductor_jax.workflows.prompts import conductor_prompt
from conductor_jax.workflows.transcript import Transcript, refuse_over_budget
from conductor_jax.workflows.workflow import ParsedPlan, ParseFailure, Workflow

# Of a task's reference in a record: that of a coding task is all of its tests.
_REFERENCE_CHARACTERS = 1000


@dataclass(frozen=True)
class Rollout:
  """One sampled plan and what came of it. A group is all rollouts of one prompt.

  Attributes:
    task: the question.
    prompt_tokens: int32[prompt], what the policy read.
    completion_tokens: int32[tokens], what it wrote, the end-of-sequence token included.
    sampler_logprobs: float32[tokens], at the sampling temperature.
    weight_versions: int32[tokens], which weights wrote each token.
    text: the completion as text, without the end-of-sequence token.
    plan: the text, parsed.
    transcript: the run, None where the plan did not parse.
    grade: the verdict on the answer, None where there is none.
    reward: None for a rejected rollout, which is masked out and counted.
  """

  task: Task
  prompt_tokens: np.ndarray
  completion_tokens: np.ndarray
  sampler_logprobs: np.ndarray
  weight_versions: np.ndarray
  text: str
  plan: ParsedPlan | ParseFailure
  transcript: Transcript | None
  grade: Grade | None
  reward: float | None

  @property
  def right(self) -> bool:
    """Whether the answer counts and is right."""
    return self.reward is not None and self.grade is not None and self.grade.correct

  def to_json(self) -> dict[str, Any]:
    """The rollout as JSON types, for a person or an audit; task metadata is left out."""
    if isinstance(self.plan, ParsedPlan):
      plan = [{"worker": step.worker, "subtask": step.subtask, "sees": list(step.sees)}
              for step in self.plan.workflow.steps]
    else:
      plan = self.plan.reason
    return {
        "task": {"id": self.task.id, "question": self.task.question, "kind": self.task.kind,
                 "reference": self.task.reference[:_REFERENCE_CHARACTERS]},
        "completion": self.text,
        "answer": self.transcript.answer if self.transcript else None,
        "reward": self.reward,
        "calls": [
            {"worker": call.worker, "response": call.response, "outcome": call.outcome,
             "reasoning": call.reasoning, "attempts": call.attempts,
             "possibly_billed": call.possibly_billed, "source": call.source,
             "fallback": call.fallback, **asdict(call.usage), "error": call.error}
            for call in (self.transcript.calls if self.transcript else ())],
        "plan": plan,
        "completion_tokens": self.completion_tokens.tolist(),
        "sampler_logprobs": self.sampler_logprobs.tolist(),
        "weight_versions": np.unique(self.weight_versions).tolist(),
    }


@dataclass(frozen=True)
class RolloutGroup:
  """All rollouts of one prompt.

  Attributes:
    rollouts: in the order of their seeds.
    seconds_sampling: how long the policy took to write them, waiting for its turn included.
    seconds_executing: how long the workers and the graders took.
  """

  rollouts: list[Rollout]
  seconds_sampling: float
  seconds_executing: float

  @property
  def oldest_version(self) -> int:
    """Of the weights that wrote any of the tokens."""
    return min(int(rollout.weight_versions.min()) for rollout in self.rollouts)


class Conductor:
  """A policy with everything that turns its completions into rewards."""

  def __init__(
      self, *, sampler: Sampler, tokenizer, executor: Executor, graders: Graders,
      reward_values: RewardValues, max_steps: int, access: Access, temperature: float
  ):
    """Args:
      sampler: holds the weights.
      tokenizer: a transformers tokenizer with a chat template.
      executor: runs the plans; all workers of its pool are on offer.
      graders: judge the answers.
      reward_values: what each outcome is worth.
      max_steps: the most steps a plan may have.
      access: which access lists the policy may write.
      temperature: of `sample`, where the call names none.
    """
    self._sampler = sampler
    self._tokenizer = tokenizer
    self._executor = executor
    self._graders = graders
    self._reward_values = reward_values
    self._max_steps = max_steps
    self._access = access
    self._temperature = temperature

  async def roll_out(self, task: Task, seeds: np.ndarray) -> RolloutGroup:
    """A group: samples and executes, see there.

    Raises:
      OutOfBudget: the workers cannot be paid.
    """
    began = time.perf_counter()
    completions = await self.sample(task, seeds)
    sampled = time.perf_counter()
    rollouts = await self.execute(task, completions, seeds)
    refuse_over_budget(rollout.transcript for rollout in rollouts)
    return RolloutGroup(rollouts, sampled - began, time.perf_counter() - sampled)

  async def sample(
      self, task: Task, seeds: np.ndarray, temperature: float | None = None) -> list[Completion]:
    """Writes one completion per seed.

    Args:
      task: the question.
      seeds: uint32[samples]. A seed fixes its completion.
      temperature: in place of the conductor's own; 0 is greedy.
    """
    return await self._sampler.sample(
        self.prompt(task), seeds, self._temperature if temperature is None else temperature)

  async def execute(
      self, task: Task, completions: Sequence[Completion], seeds: np.ndarray) -> list[Rollout]:
    """Parses and runs the completions, all at once, and grades their answers.

    Args:
      task: the question.
      completions: from `sample`.
      seeds: uint32[samples], those of `sample`. The seed of a run is derived from its own one
        alone, so a rollout does not depend on what else runs, or in which order.

    Returns:
      One rollout per completion, in order.
    """
    prompt = np.asarray(self.prompt(task), np.int32)
    texts = [self._text(completion) for completion in completions]
    plans = [self._parse(text) for text in texts]
    parsed = [i for i, plan in enumerate(plans) if isinstance(plan, ParsedPlan)]
    results = dict(zip(parsed, await run_and_grade(self._executor, self._graders, [
        (task, plans[i].workflow, _execution_seed(seeds[i])) for i in parsed]), strict=True))

    def rollout(i: int, completion: Completion) -> Rollout:
      transcript, grade = results.get(i, (None, None))
      return Rollout(
          task=task, prompt_tokens=prompt, completion_tokens=completion.tokens,
          sampler_logprobs=completion.logprobs, weight_versions=completion.weight_versions,
          text=texts[i], plan=plans[i], transcript=transcript, grade=grade,
          reward=reward(plans[i], transcript, grade, self._reward_values))

    return [rollout(i, completion) for i, completion in enumerate(completions)]

  def prompt(self, task: Task) -> list[int]:
    """What the policy reads, in tokens."""
    return conductor_prompt(
        self._tokenizer, task.question, workers=len(self._executor.pool),
        max_steps=self._max_steps, access=self._access)

  def _text(self, completion: Completion) -> str:
    tokens = completion.tokens.tolist()
    if tokens and tokens[-1] == self._tokenizer.eos_token_id:
      tokens = tokens[:-1]
    return self._tokenizer.decode(tokens, skip_special_tokens=True)

  def _parse(self, text: str) -> ParsedPlan | ParseFailure:
    return parse_lists(
        text, workers=len(self._executor.pool), max_steps=self._max_steps, access=self._access)


def _execution_seed(seed: int) -> int:
  # The constant keeps the workers' noise apart from the sampler's, which starts from `seed` itself.
  return int(np.random.SeedSequence([int(seed), 1]).generate_state(1)[0])


def rollout_metrics(
    groups: Sequence[Sequence[Rollout]], worker_names: Sequence[str]
) -> dict[str, float]:
  """What a training iteration reports about its rollouts.

  Accepted rollouts are those with a reward; parsed ones are those whose plan parsed, rejected
  ones included. A mean over nothing is left out.

      reward, reward_std       mean and standard deviation, over accepted
      accuracy[/kind]          right / accepted, an unparsed plan counts as wrong
      parse_rate               parsed / all
      correct_given_parsed     right / (accepted and parsed)
      steps_per_plan           over parsed
      worker_entropy_bits      of the worker ids of all steps, over parsed
      access_density           share of steps after the first with an open access list, over parsed
      zero_variance_groups     share of groups whose accepted rewards do not differ, and so teach
                               nothing; those with fewer than two accepted included
      rejected                 rejected / all
      completion_tokens        mean length of what the policy wrote, over all
      worker_tokens, cost      tokens (read and written) and dollars of the workers, mean over all
      possible_cost            dollars that failed requests may have cost on top, likewise
      attempts_per_call        requests per call that was made
      shared_calls             share of the calls whose answer another rollout of the group got
      share/kind/worker        share of the steps of that kind's plans given to that worker

  Args:
    groups: all rollouts of an iteration.
    worker_names: the name of each worker id.
  """
  rollouts = [rollout for group in groups for rollout in group]
  accepted = [rollout for rollout in rollouts if rollout.reward is not None]
  rewards = [rollout.reward for rollout in accepted]
  workflows = _workflows(rollouts)
  transcripts = [rollout.transcript for rollout in rollouts if rollout.transcript is not None]
  usages = [transcript.usage for transcript in transcripts]
  calls = [call for transcript in transcripts for call in transcript.calls]
  metrics = {
      "reward": mean(rewards),
      "reward_std": float(np.std(rewards)) if rewards else None,
      "accuracy": mean(rollout.right for rollout in accepted),
      "parse_rate": mean(isinstance(rollout.plan, ParsedPlan) for rollout in rollouts),
      "correct_given_parsed": mean(
          rollout.right for rollout in accepted if isinstance(rollout.plan, ParsedPlan)),
      "steps_per_plan": steps_per_plan(workflows),
      "worker_entropy_bits": worker_entropy_bits(workflows),
      "access_density": access_density(workflows),
      "zero_variance_groups": mean(
          len({rollout.reward for rollout in group} - {None}) < 2 for group in groups),
      "rejected": mean(rollout.reward is None for rollout in rollouts),
      "completion_tokens": mean(len(rollout.completion_tokens) for rollout in rollouts),
      "worker_tokens": sum(usage.tokens for usage in usages) / len(rollouts) if rollouts else None,
      "cost": sum(usage.cost for usage in usages) / len(rollouts) if rollouts else None,
      "possible_cost": (
          sum(usage.possible_cost for usage in usages) / len(rollouts) if rollouts else None),
      "attempts_per_call": mean(call.attempts for call in calls if call.attempts),
      "shared_calls": mean(call.source == "group" for call in calls),
  }
  for kind in sorted({rollout.task.kind for rollout in rollouts}):
    metrics[f"accuracy/{kind}"] = mean(
        rollout.right for rollout in accepted if rollout.task.kind == kind)
    shares = worker_shares(
        _workflows([rollout for rollout in rollouts if rollout.task.kind == kind]),
        len(worker_names))
    if shares is not None:
      for name, share in zip(worker_names, shares, strict=True):
        metrics[f"share/{kind}/{name}"] = share
  return {name: value for name, value in metrics.items() if value is not None}


def _workflows(rollouts: Sequence[Rollout]) -> list[Workflow]:
  return [rollout.plan.workflow for rollout in rollouts if isinstance(rollout.plan, ParsedPlan)]
