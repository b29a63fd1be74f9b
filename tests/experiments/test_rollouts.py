"""GRPO's batches, of rollouts that a script says."""

import contextlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from anyio.from_thread import start_blocking_portal

from conductor_jax.errors import UserError
from conductor_jax.reporting.metrics import RolloutLog
from conductor_jax.rewards import Reward, RewardValues
from conductor_jax.rollouts import Conductor, Rollout, RolloutGroup, Turn
from conductor_jax.sampling.sampler import Completion
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Grade, Task
from conductor_jax.workers.call import CallRecord, Usage
from conductor_jax.workers.offer import Offer
from conductor_jax.workflows.transcript import Transcript
from conductor_jax.workflows.workflow import ParsedPlan, ParseFailure, Step, Workflow
from configs import quickstart
from experiments.chat import Chat
from experiments.components import load_splits, make_offers, worker_names
from experiments.rollouts import Rollouts

EOS = 1
PLAN = Workflow((Step(0, "Solve it."),))
# Of one question: rewards of the first round, and of the second one where there is any. None is
# rejected, 0 did not parse; neither has a second round.
FIRST, SECOND = (1.0, 0.5, None, 0.0), (1.0, 0.5)


def rollout(
    asked: tuple, place: int, reward: float | None, version: int, error: str = "HTTP 503"
) -> Rollout:
  """One whose tokens tell its round and place: as many as that, and one."""
  task, offer, *before = asked
  later = bool(before)
  prompt = np.arange(2, 7 + 20 * later + place * later, dtype=np.int32)
  outcome = "answered" if reward else "unavailable"
  ran = reward != 0.0
  call = CallRecord("w", {}, "4", Usage(), 1.0, 1, outcome, error=None if reward else error)
  tokens = np.array([100 * later + 10 + place] * (place + 1), np.int32)
  return Rollout(
      turn=Turn(task, offer, prompt, *before),
      completion_tokens=tokens, sampler_logprobs=np.full(place + 1, -0.25, np.float32),
      weight_versions=np.full(place + 1, version, np.int32), text="",
      plan=ParsedPlan(PLAN, {}) if ran else ParseFailure("no lists", 0),
      transcript=Transcript(PLAN, [call], "4" if reward else None, Usage()) if ran else None,
      grade=Grade(reward == 1.0, "4", "") if reward else None,
      parts=None if reward is None else Reward(reward, reward), reward=reward)


@dataclass
class Scripted:
  """A conductor with the same rewards for every question, and what it was asked.

  Attributes:
    first, second: rewards of the rounds.
    asked: of every question its id, its seeds, its offer and whether it has a second round.
    weights: that write the plans.
  """

  first: tuple[float | None, ...] = FIRST
  second: tuple[float | None, ...] = SECOND
  asked: list[tuple] = field(default_factory=list)
  weights: "Weights | None" = None

  async def roll_out(self, task, seeds, offer, *, recursive=False) -> RolloutGroup:
    self.asked.append((task.id, seeds.tolist(), offer.workers, recursive))
    version = self.weights.version
    first = [rollout((task, offer), i, reward, version) for i, reward in enumerate(self.first)]
    rounds = [first]
    if recursive:
      going = [each for each in first if each.reward]
      rounds.append([
          rollout((task, offer, before), i, reward, version, "HTTP 429")
          for i, (before, reward) in enumerate(zip(going, self.second, strict=False))])
    return RolloutGroup(rounds, 1.0, 2.0)


class Weights:
  """A sampler that takes whatever it is given, and a policy that has nothing else."""

  def __init__(self, version: int):
    self.version = version

  def whole(self, params):
    return params

  def stage(self, params, version):
    self.version = version

  async def load(self):
    pass

  async def rest(self):
    pass


def config_of(**options):
  config = quickstart.get_config()
  config.grpo.update(dict(prompts=4, group_size=4, iterations=12, advantage="mean"))
  config.workflow.max_rounds, config.grpo.recursion.share = 2, 0.5
  config.report.rollouts_every = 1
  config.update_from_flattened_dict({key.replace("__", "."): v for key, v in options.items()})
  return config


@pytest.fixture(scope="module")
def portal():
  with start_blocking_portal() as portal:
    yield portal


@pytest.fixture
def collecting(portal, tmp_path):
  """(conductor, step, record, options) → rollouts, from a step on."""
  with contextlib.ExitStack() as stack:
    def start(conductor, step=0, record=None, workdir: Path = tmp_path, **options):
      config = config_of(**options)
      tasks = [Task(f"t{i}", f"Which is {i}?", "4", "words") for i in range(20)]
      run = SimpleNamespace(
          config=config, workdir=workdir, portal=portal, splits=SimpleNamespace(train=tasks),
          offers=make_offers(config), chat=SimpleNamespace(
              tokenizer=SimpleNamespace(eos_token_id=EOS)),
          executor=SimpleNamespace(pool=SimpleNamespace(
              workers=[SimpleNamespace(name=name) for name in worker_names(config)])))
      conductor.weights = Weights(step)
      rollouts = Rollouts(run, conductor.weights, conductor, conductor.weights)
      stack.callback(rollouts.close)
      rollouts.start(step, record or {})
      return rollouts

    yield start


def iterate(rollouts, steps, begin=0):
  """The batches of so many iterations, and the records after them."""
  found = []
  for step in range(begin, begin + steps):
    batches, _ = rollouts.batch(step)
    rollouts.publish({}, step + 1)
    rollouts.wait_for_weights()
    found.append((batches, rollouts.record()))
  return found


class TestWhichQuestionsAreRecursive:

  def test_as_many_of_every_iteration_and_others_each_time(self, collecting):
    conductor = Scripted()
    iterate(collecting(conductor), 8)
    chosen = np.array([recursive for *_, recursive in conductor.asked[:32]]).reshape(8, 4)
    assert chosen.sum(axis=1).tolist() == [2] * 8
    assert len({tuple(row) for row in chosen.tolist()}) >= 4
    # Every place gets its turn.
    assert (chosen.sum(axis=0) > 0).all()

  @pytest.mark.parametrize(("share", "count"), [(0.25, 1), (0.75, 3), (1.0, 4), (0.0, 0)])
  def test_the_share_is_that_of_the_config(self, collecting, share, count):
    conductor = Scripted()
    batches = iterate(collecting(conductor, grpo__recursion__share=share), 3)
    for i, (each, _) in enumerate(batches):
      assert sum(recursive for *_, recursive in conductor.asked[4 * i:4 * i + 4]) == count
      assert [batch.prompt_tokens.shape[0] for batch in each] == [4, 4 * count][:1 + (count > 0)]

  def test_they_are_the_same_and_so_are_seeds_and_offers_for_a_run_that_goes_on(
      self, collecting, tmp_path):
    whole, resumed = Scripted(), Scripted()
    options = dict(pool__offer="uniform:2-5")
    found = iterate(collecting(whole, **options), 6)
    record = found[2][1]
    iterate(collecting(resumed, 3, record, workdir=tmp_path / "resumed", **options), 3, begin=3)
    assert resumed.asked[:12] == whole.asked[12:24]
    assert len({tuple(seeds) for _, seeds, _, _ in whole.asked}) == len(whole.asked)
    assert len({offer for *_, offer, _ in whole.asked}) > 10
    other = Scripted()
    iterate(collecting(other, workdir=tmp_path / "other", seed=1, **options), 3)
    assert [each[3] for each in other.asked] != [each[3] for each in whole.asked[:12]]


def taught(collecting, conductor=None, **options):
  """The batches of an iteration, and by question whether it has a second round."""
  conductor = conductor or Scripted()
  (batches, _), = iterate(collecting(conductor, **options), 1)
  return batches, [recursive for *_, recursive in conductor.asked[:4]]


def per_row(values, mask):
  """The value at the first token of each completion that counts, None at others."""
  return [[float(value[0]) if counts.any() else None for value, counts in zip(*row, strict=True)]
          for row in zip(values, mask, strict=True)]


class TestAdvantages:

  def test_each_round_of_a_question_is_a_group_of_its_own(self, collecting):
    (first, later), _ = taught(collecting)
    # Mean of 1, 0.5 and 0: 0.5. Mean of 1 and 0.5: 0.75.
    assert per_row(first.advantages, first.completion_mask) == [[0.5, 0.0, None, -0.5]] * 4
    assert per_row(later.advantages, later.completion_mask) == [
        [0.25], [-0.25], [0.25], [-0.25], [None], [None], [None], [None]]

  def test_both_rounds_of_a_question_may_be_one_group(self, collecting):
    (first, later), recursive = taught(collecting, grpo__recursion__group="question")
    # Mean of 1, 0.5, 0, 1 and 0.5: 0.6.
    rows = per_row(first.advantages, first.completion_mask)
    for row, has_second in zip(rows, recursive, strict=True):
      expected = [0.4, -0.1, None, -0.6] if has_second else [0.5, 0.0, None, -0.5]
      assert row == [each if each is None else pytest.approx(each, abs=1e-6) for each in expected]
    np.testing.assert_allclose(
        [value for value, in per_row(later.advantages, later.completion_mask)[:4]],
        [0.4, -0.1, 0.4, -0.1], atol=1e-6)

  def test_a_round_whose_rewards_are_equal_is_dropped_and_the_other_one_kept(self, collecting):
    drop = dict(grpo__drop_zero_variance=True)
    (first, later), _ = taught(collecting, Scripted(second=(0.5, 0.5)), **drop)
    assert first.completion_mask.any(axis=-1).tolist() == [[True, True, False, True]] * 4
    assert not later.completion_mask.any()
    equal = Scripted(first=(0.5, 0.5, None, 0.5), second=(1.0, 0.5, 1.0))
    (first, later), _ = taught(collecting, equal, **drop)
    assert not first.completion_mask.any()
    assert later.completion_mask.any(axis=(1, 2)).tolist() == [True] * 6 + [False] * 2

  def test_where_both_are_one_group_it_is_dropped_or_kept_as_one(self, collecting):
    options = dict(grpo__drop_zero_variance=True, grpo__recursion__group="question")
    equal = Scripted(first=(0.5, 0.5, None, 0.5), second=(1.0, 0.5, None))
    (first, later), recursive = taught(collecting, equal, **options)
    assert first.completion_mask.any(axis=(1, 2)).tolist() == recursive
    assert later.completion_mask.any(axis=(1, 2)).sum() == 4  # the third of each is rejected
    same = Scripted(first=(0.5, 0.5, None, 0.5), second=(0.5, 0.5, 0.5))
    for batch in taught(collecting, same, **options)[0]:
      assert not batch.completion_mask.any()


class TestRows:

  def test_rows_of_second_rounds_are_one_rollout_each_and_filled_up_to_those_of_the_first(
      self, collecting):
    (first, later), _ = taught(collecting)
    assert first.completion_tokens.shape[:2] == (4, 4)
    # Two questions of four, of whose plans two each ran.
    assert later.completion_tokens.shape[:2] == (2 * 4, 1)
    assert later.completion_mask.sum(axis=(1, 2)).tolist() == [1, 2, 1, 2, 0, 0, 0, 0]
    assert later.completion_tokens[:, 0, 0].tolist()[:4] == [110, 111, 110, 111]
    assert later.prompt_mask.sum(axis=1).tolist() == [25, 26, 25, 26, 1, 1, 1, 1]
    # Few widths, of each of which a program is compiled.
    assert (first.prompt_tokens.shape[1], later.prompt_tokens.shape[1]) == (8, 64)

  def test_where_no_plan_ran_all_of_them_are_blank(self, collecting):
    unparsed = Scripted(first=(0.0, 0.0, 0.0, 0.0))
    (first, later), _ = taught(collecting, unparsed)
    assert later.completion_tokens.shape[:2] == (8, 1) and not later.completion_mask.any()
    assert first.completion_mask.any(axis=-1).all()

  def test_rows_of_first_rounds_hold_as_many_as_the_config_says_and_later_ones_still_one(
      self, collecting):
    (first, later), _ = taught(collecting, grpo__samples_per_row=2)
    assert first.completion_tokens.shape[:2] == (8, 2)
    assert later.completion_tokens.shape[:2] == (8, 1)

  def test_what_is_recorded_of_an_iteration_has_both_rounds(self, collecting, tmp_path):
    batches, recursive = taught(collecting)
    rows = RolloutLog(tmp_path).read(0)
    assert len(rows) == 4 * 4 + 2 * 2
    assert sum(row["previous_answer"] == "4" for row in rows) == 4
    # Of each question its first round, then its second one.
    lengths = [4 + 2 * each for each in recursive]
    assert [row["previous_answer"] is not None for row in rows] == [
        i >= 4 for length in lengths for i in range(length)]


def test_an_iteration_without_any_reward_ends_the_run_and_names_the_last_fault(collecting):
  rejected = Scripted(first=(None,) * 4)
  with pytest.raises(UserError, match=(
      "^iteration 1: every rollout was rejected, the last because HTTP 503: mend it, then run the "
      "same command")):
    collecting(rejected).batch(0)


def test_the_fault_may_be_that_of_a_second_round(collecting):
  class Discounted(Scripted):
    """A first reward that a second one has a part in is none without it."""

    async def roll_out(self, *arguments, **options):
      group = await super().roll_out(*arguments, **options)
      first, *later = group.rounds
      return RolloutGroup([[replace(each, reward=None) for each in first], *later], 1.0, 1.0)

  conductor = Discounted(first=(1.0,) * 4, second=(None,) * 4)
  with pytest.raises(UserError, match="^iteration 1: .* the last because HTTP 429: mend it"):
    collecting(conductor, grpo__recursion__share=1.0).batch(0)


PREFILL = "Let me plan this step by step.\n"


class Recorded:
  """A sampler that writes no plan, and notes the prompts."""

  def __init__(self, tokens):
    self.tokens, self.prompts = tokens, []

  async def sample(self, prompt, seeds, temperature):
    self.prompts.append(list(prompt))
    return [Completion(tokens, np.linspace(-2, -1, len(tokens), dtype=np.float32), "length",
                       np.zeros(len(tokens), np.int32)) for tokens in self.tokens]


def test_what_is_trained_is_what_was_sampled_and_the_prefill_is_in_the_prompt(collecting):
  config = quickstart.get_config()
  config.tasks.train, config.evaluation.tasks = 60, 12
  config.workflow.prefill = PREFILL
  splits, offers = load_splits(config), make_offers(config)
  chat = Chat(config, splits, offers.training, None)
  # Tokens that the tokenizer would not make of their text, an end in the middle among them.
  eos = chat.tokenizer.eos_token_id
  sampled = [np.array(tokens, np.int32) for tokens in (
      [72, 73, 74], [72], [eos, 80, eos], list(range(70, 79)))]
  assert chat.tokenizer.encode(chat.tokenizer.decode(sampled[3])) != sampled[3].tolist()
  sampler = Recorded(sampled)

  class Whole:
    """Makes every question one and the same."""

    asked = ()

    async def roll_out(self, task, seeds, offer, *, recursive=False):
      del task, recursive
      with contextlib.closing(Graders()) as graders:
        return await Conductor(
            sampler=sampler, tokenizer=chat.tokenizer, template=chat.template, executor=None,
            graders=graders, reward_values=RewardValues(), temperature=1.0,
            max_prompt=1000).roll_out(splits.train[0], seeds, Offer(tuple(range(7))))

  batch, = taught(collecting, Whole(), grpo__recursion__share=0.0)[0]
  prefill = chat.tokenizer.encode(PREFILL, add_special_tokens=False)
  for row in range(4):
    prompt = batch.prompt_tokens[row][batch.prompt_mask[row]].tolist()
    assert prompt == sampler.prompts[row] == chat.prompt(splits.train[0])
    assert prompt[-len(prefill):] == prefill
    for i, tokens in enumerate(sampled):
      mask = batch.completion_mask[row, i]
      assert batch.completion_tokens[row, i][mask].tolist() == tokens.tolist()
      assert mask.tolist() == [n < len(tokens) for n in range(16)]
      np.testing.assert_array_equal(
          batch.sampler_logprobs[row, i][mask], np.linspace(-2, -1, len(tokens), dtype=np.float32))
