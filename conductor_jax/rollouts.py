"""The road from tasks to rollouts: prompt, sample, parse, execute, grade, reward."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from conductor_jax.credit.counterfactual import Counterfactual, Counterfactuals, PlanRun
from conductor_jax.gather import gather_all
from conductor_jax.rewards import FirstReward, Reward, RewardValues, first_round_reward, reward
from conductor_jax.sampling.sampler import Completion, Sampler
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Grade, Task
from conductor_jax.workers.call import Usage
from conductor_jax.workers.offer import Offer
from conductor_jax.workflows.executor import Executor
from conductor_jax.workflows.format import Family
from conductor_jax.workflows.grading import PlannedRun, run_and_grade
from conductor_jax.workflows.prompts import PromptTemplate
from conductor_jax.workflows.transcript import Transcript, refuse_over_budget
from conductor_jax.workflows.workflow import ParsedPlan, ParseFailure, Step, Workflow

# Keeps the choice of mutations apart from what else follows from a group's seeds.
_MUTATIONS = 3
# Of a task's reference in a record: that of a coding task is all of its tests.
_REFERENCE_CHARACTERS = 1000


@dataclass(frozen=True)
class Turn:
  """What the conductor is asked.

  Attributes:
    task: the question.
    offer: which workers its plan may use.
    prompt_tokens: int32[prompt], what it reads.
    before: the round before this one, None in the first.
  """

  task: Task
  offer: Offer
  prompt_tokens: np.ndarray
  before: "Rollout | None" = None

  @property
  def previous(self) -> str | None:
    """The answer of the round before, "" where it brought none; None in the first round."""
    return None if self.before is None else self.before.answer


@dataclass(frozen=True)
class Rollout:
  """One sampled plan and what came of it. A group is all rollouts of one question and round.

  Attributes:
    turn: what was asked.
    completion_tokens: int32[tokens], what it wrote, the end-of-sequence token included.
    sampler_logprobs: float32[tokens], at the sampling temperature.
    weight_versions: int32[tokens], which weights wrote each token.
    text: the completion as text, without the prefill and the end-of-sequence token.
    plan: the text, parsed; workers are ids in the pool.
    transcript: the run, None where the plan did not parse.
    grade: the verdict on the answer, None where there is none.
    parts: the reward of this round alone and what it is made of, None for a rejected rollout.
    reward: what is trained on, which a later round may have a part in; None for a rejected rollout,
      which is masked out and counted.
    counterfactuals: what fields of the plan are worth, where they were measured.
  """

  turn: Turn
  completion_tokens: np.ndarray
  sampler_logprobs: np.ndarray
  weight_versions: np.ndarray
  text: str
  plan: ParsedPlan | ParseFailure
  transcript: Transcript | None
  grade: Grade | None
  parts: Reward | None
  reward: float | None
  counterfactuals: tuple[Counterfactual, ...] = ()

  @property
  def task(self) -> Task:
    return self.turn.task

  @property
  def right(self) -> bool:
    """Whether the answer counts and is right."""
    return self.parts is not None and self.grade is not None and self.grade.correct

  @property
  def workflow(self) -> Workflow | None:
    """The plan, None where it did not parse."""
    return self.plan.workflow if isinstance(self.plan, ParsedPlan) else None

  @property
  def answer(self) -> str:
    """Of a plan that ran, "" where it brought none."""
    return self.transcript.answer or ""

  @property
  def kept(self) -> tuple[Transcript, Grade | None]:
    """What comes of a next round that leaves the answer as it is."""
    return Transcript(Workflow(()), (), self.transcript.answer, Usage()), self.grade

  def to_json(self) -> dict[str, Any]:
    """The rollout as JSON types, for a person or an audit; task metadata is left out."""
    plan = (self.plan.reason if self.workflow is None
            else [asdict(step) for step in self.workflow.steps])
    return {
        "task": {"id": self.task.id, "question": self.task.question, "kind": self.task.kind,
                 "reference": self.task.reference[:_REFERENCE_CHARACTERS]},
        "offered": list(self.turn.offer.workers),
        "previous_answer": self.turn.previous,
        "completion": self.text,
        "answer": self.transcript.answer if self.transcript else None,
        "reward": self.reward,
        "reward_parts": None if self.parts is None else asdict(self.parts),
        "calls": [
            {"worker": call.worker, "response": call.response, "outcome": call.outcome,
             "reasoning": call.reasoning, "attempts": call.attempts,
             "possibly_billed": call.possibly_billed, "source": call.source,
             "fallback": call.fallback, **asdict(call.usage), "error": call.error}
            for call in (self.transcript.calls if self.transcript else ())],
        "plan": plan,
        "counterfactuals": [_counterfactual(self.workflow, each) for each in self.counterfactuals],
        "completion_tokens": self.completion_tokens.tolist(),
        "sampler_logprobs": self.sampler_logprobs.tolist(),
        "weight_versions": np.unique(self.weight_versions).tolist(),
    }


@dataclass(frozen=True)
class RolloutGroup:
  """All rollouts of one question.

  Attributes:
    rounds: the rollouts of each round, in the order of their seeds. Those of a second one are
      fewer: a first plan that did not parse or was rejected has none, and neither has one after
      which the prompt would be too long.
    seconds_sampling: how long the policy took to write those of the first round, waiting for its
      turn included.
    seconds_executing: how long the rest took.
  """

  rounds: list[list[Rollout]]
  seconds_sampling: float
  seconds_executing: float

  @property
  def oldest_version(self) -> int:
    """Of the weights that wrote any of the tokens."""
    return min(int(rollout.weight_versions.min()) for each in self.rounds for rollout in each)


@dataclass(frozen=True)
class Recursion:
  """How a first round is rewarded that a second one follows.

  The discount is the one of RL Conductor (arXiv 2512.04388); see `first_round_reward`.
  """

  discount: float = 0.25
  first_reward: FirstReward = "discounted"


class Conductor:
  """A policy with everything that turns its completions into rewards.

  Attributes:
    max_prompt: tokens that it reads at most.
  """

  def __init__(
      self, *, sampler: Sampler, tokenizer, template: PromptTemplate, executor: Executor,
      graders: Graders, reward_values: RewardValues, temperature: float, max_prompt: int,
      recursion: Recursion = Recursion(), counterfactuals: Counterfactuals | None = None,
      empty_access: bool = False
  ):
    """Args:
      sampler: holds the weights.
      tokenizer: a transformers tokenizer with a chat template.
      template: what is asked, and in which format plans are written.
      executor: runs the plans.
      graders: judge the answers.
      reward_values: what each outcome is worth.
      temperature: of `sample`, where the call names none.
      max_prompt: tokens that the policy reads at most. Previous answers are shortened to it.
      recursion: of `roll_out` with a second round.
      counterfactuals: measures what fields of first rounds' plans are worth, in `roll_out`; None
        for nothing of the kind.
      empty_access: whether plans run without their access lists, so that no step sees another:
        what these are worth is measured so.
    """
    self._sampler = sampler
    self._tokenizer = tokenizer
    self._template = template
    self._executor = executor
    self._graders = graders
    self._reward_values = reward_values
    self._temperature = temperature
    self.max_prompt = max_prompt
    self._recursion = recursion
    self._counterfactuals = counterfactuals
    self._empty_access = empty_access

  async def roll_out(
      self, task: Task, seeds: np.ndarray, offer: Offer, *, recursive: bool = False,
      chances: Mapping[Family, float] | None = None
  ) -> RolloutGroup:
    """A group: samples and executes, see there.

    Args:
      task: the question.
      seeds: uint32[samples], one per rollout.
      offer: which workers may be used.
      recursive: whether every plan that ran is followed by a second round, but for those whose
        prompt would be too long.
      chances: of the mutation families, for a conductor with counterfactuals.

    Raises:
      OutOfBudget: the workers cannot be paid.
    """
    began = time.perf_counter()
    turn = self.turn(task, offer)
    completions = await self.sample(turn, seeds)
    sampled = time.perf_counter()
    rounds = [await self.execute(turn, completions, seeds)]
    refuse_over_budget(rollout.transcript for rollout in rounds[0])
    if self._counterfactuals is not None:
      rounds = [await self._with_counterfactuals(rounds[0], seeds, chances)]
    if recursive:
      rounds = await self._go_on(rounds[0], seeds)
      refuse_over_budget(rollout.transcript for rollout in rounds[1])
    return RolloutGroup(rounds, sampled - began, time.perf_counter() - sampled)

  async def _with_counterfactuals(
      self, rollouts: list[Rollout], seeds: np.ndarray, chances: Mapping[Family, float]
  ) -> list[Rollout]:
    """Rollouts of a first round, with what fields of their plans are worth."""
    ran = [i for i, rollout in enumerate(rollouts)
           if rollout.parts is not None and rollout.workflow is not None]
    measured = await self._counterfactuals.measure([
        PlanRun(rollouts[i].task, rollouts[i].turn.offer, rollouts[i].plan, rollouts[i].transcript,
                rollouts[i].parts.total, _execution_seed(seeds[i])) for i in ran],
        chances, np.random.default_rng([*map(int, seeds), _MUTATIONS]))
    found = dict(zip(ran, measured, strict=True))
    return [replace(rollout, counterfactuals=found.get(i, ()))
            for i, rollout in enumerate(rollouts)]

  async def _go_on(self, first: list[Rollout], seeds: np.ndarray) -> list[list[Rollout]]:
    """Both rounds, with the rewards of the first as the second one makes them."""
    turns = {i: turn for i, rollout in enumerate(first)
             if (turn := self.next_turn(rollout)) is not None}

    async def second(i: int, turn: Turn) -> Rollout:
      rollout, = await self.write_and_run(turn, later_seed(seeds[i:i + 1]))
      return rollout

    later = dict(zip(
        turns, await gather_all(second(i, turn) for i, turn in turns.items()), strict=True))
    rewarded = [
        rollout if i not in later else replace(rollout, reward=first_round_reward(
            rollout.reward, later[i].reward, self._recursion.discount,
            self._recursion.first_reward))
        for i, rollout in enumerate(first)]
    return [rewarded, list(later.values())]

  async def write_and_run(
      self, turn: Turn, seeds: np.ndarray, temperature: float | None = None) -> list[Rollout]:
    """Samples and executes; arguments as there."""
    return await self.execute(turn, await self.sample(turn, seeds, temperature), seeds)

  async def sample(
      self, turn: Turn, seeds: np.ndarray, temperature: float | None = None) -> list[Completion]:
    """Writes one completion per seed.

    Args:
      turn: what is asked.
      seeds: uint32[samples]. A seed fixes its completion.
      temperature: in place of the conductor's own; 0 is greedy.
    """
    return await self._sampler.sample(
        turn.prompt_tokens.tolist(), seeds,
        self._temperature if temperature is None else temperature)

  async def execute(
      self, turn: Turn, completions: Sequence[Completion], seeds: np.ndarray) -> list[Rollout]:
    """Parses and runs the completions, all at once, and grades their answers.

    Args:
      turn: what was asked.
      completions: from `sample`.
      seeds: uint32[samples], those of `sample`. The seed of a run is derived from its own one
        alone, so a rollout does not depend on what else runs, or in which order.

    Returns:
      One rollout per completion, in order.
    """
    texts = [self._text(completion) for completion in completions]
    plans = [self._parse(turn, text) for text in texts]
    results: dict[int, tuple[Transcript, Grade | None]] = {}
    running = []
    for i, plan in enumerate(plans):
      if isinstance(plan, ParsedPlan):
        if plan.workflow.steps:
          running.append(i)
        else:
          results[i] = turn.before.kept
    results |= zip(running, await run_and_grade(self._executor, self._graders, [
        PlannedRun(turn.task, plans[i].workflow, _execution_seed(seeds[i]), _last_step(turn.before))
        for i in running]), strict=True)

    def rollout(i: int, completion: Completion) -> Rollout:
      transcript, grade = results.get(i, (None, None))
      parts = reward(plans[i], transcript, grade, self._reward_values)
      return Rollout(
          turn=turn, completion_tokens=completion.tokens, sampler_logprobs=completion.logprobs,
          weight_versions=completion.weight_versions, text=texts[i], plan=plans[i],
          transcript=transcript, grade=grade, parts=parts,
          reward=None if parts is None else parts.total)

    return [rollout(i, completion) for i, completion in enumerate(completions)]

  def turn(self, task: Task, offer: Offer, before: Rollout | None = None) -> Turn:
    """What the policy is asked, in the tokens that it reads."""
    tokens = self._template.tokens(
        self._tokenizer, task.question, offer.numbers,
        previous=None if before is None else before.answer, limit=self.max_prompt)
    return Turn(task, offer, np.array(tokens, np.int32), before)

  def next_turn(self, rollout: Rollout) -> Turn | None:
    """What is asked after a round; None where its plan did not parse, was rejected or kept the
    answer before, or where the policy cannot read the prompt."""
    if rollout.parts is None or rollout.workflow is None or not rollout.workflow.steps:
      return None
    turn = self.turn(rollout.task, rollout.turn.offer, rollout)
    return turn if self.fits(turn) else None

  def fits(self, turn: Turn) -> bool:
    """Whether the policy can read the prompt."""
    return len(turn.prompt_tokens) <= self.max_prompt

  def _text(self, completion: Completion) -> str:
    tokens = completion.tokens.tolist()
    if tokens and tokens[-1] == self._tokenizer.eos_token_id:
      tokens = tokens[:-1]
    return self._tokenizer.decode(
        tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)

  def _parse(self, turn: Turn, text: str) -> ParsedPlan | ParseFailure:
    prefill = self._template.prefill
    plan = self._template.format.parse(
        prefill + text, turn.offer, previous=turn.before is not None)
    if isinstance(plan, ParseFailure):
      return replace(plan, position=max(plan.position - len(prefill), 0))
    plan = plan.shifted(-len(prefill))
    if not self._empty_access:
      return plan
    steps = tuple(Step(step.worker, step.subtask) for step in plan.workflow.steps)
    return replace(plan, workflow=Workflow(steps), references=())


def _counterfactual(workflow: Workflow, found: Counterfactual) -> dict[str, Any]:
  """A counterfactual as JSON types."""
  mutation = found.mutation
  before, after = (each.steps[mutation.step].sees for each in (workflow, mutation.workflow))
  return {"family": mutation.family, "step": mutation.step, "span": list(mutation.span),
          "removed": [seen for seen in before if seen not in after], "delta": found.delta}


def _last_step(before: Rollout | None) -> tuple[str, str] | None:
  """Subtask and answer of the last step of a round."""
  if before is None:
    return None
  return before.workflow.steps[-1].subtask, before.answer


def _execution_seed(seed: int) -> int:
  # The constant keeps the workers' noise apart from the sampler's, which starts from `seed` itself.
  return int(np.random.SeedSequence([int(seed), 1]).generate_state(1)[0])


def later_seed(seeds: np.ndarray) -> np.ndarray:
  """The seeds of the next round, uint32, each from its own one alone."""
  return np.array([np.random.SeedSequence([int(seed), 2]).generate_state(1)[0]
                   for seed in seeds], np.uint32)
