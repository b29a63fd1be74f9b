"""Runs of one question: calls that they share, and turns that they take with other groups."""

import asyncio

import pytest

from conductor_jax.workers.budget import Spending
from conductor_jax.workers.call import Usage
from conductor_jax.workers.pool import Limits
from conductor_jax.workflows.executor import Executor, RunGroup, call_seed
from tests.workers.endpoint import completion, reply
from tests.workflows.four_workers import QUESTION, plan, until

ONE = ((0, "Do A."),)


def start(workers, *plans, group, client=None, share=True, question=QUESTION):
  """Starts runs of a group, with seeds 0, 1, ..."""
  executor = Executor(
      client or workers.client, context="messages", share_identical_calls=share)
  return [asyncio.create_task(executor.run(plan(*steps), question, seed=seed, group=group))
          for seed, steps in enumerate(plans)]


async def run_all(workers, *plans, **options):
  return await asyncio.gather(*start(workers, *plans, **options))


def held(workers, model):
  """Keeps a worker's answers back until the event that is returned is set."""
  release = asyncio.Event()

  async def answer(request):
    await release.wait()
    return await reply(completion("held"))(request)

  workers.behaviours[model] = answer
  return release


async def test_nothing_is_shared_unless_it_is_switched_on(workers):
  executor = Executor(workers.client, context="messages")
  group = RunGroup()
  await asyncio.gather(*(
      executor.run(plan(*ONE), QUESTION, seed=seed, group=group) for seed in range(3)))
  assert workers.hits == 3


async def test_a_first_call_that_runs_of_a_group_make_alike_is_made_and_paid_for_once(workers):
  transcripts = await run_all(workers, *[(*ONE, (1, "Do B.", (0,)))] * 4, group=RunGroup())
  assert len(workers.conversations("w0")) == 1
  assert workers.bodies[0]["seed"] == call_seed(0, 0)  # the first run's
  assert len(workers.conversations("w1")) == 4
  firsts = [transcript.calls[0] for transcript in transcripts]
  assert [call.source for call in firsts] == ["endpoint", "group", "group", "group"]
  assert [call.attempts for call in firsts] == [1, 0, 0, 0]
  assert [call.usage for call in firsts[1:]] == [Usage()] * 3
  assert {call.response for call in firsts} == {"answer of w0"}
  total = sum((transcript.usage for transcript in transcripts), Usage())
  assert total == Usage(5000, 2500, pytest.approx(5 * 0.007))
  spending = workers.client.budget.spending()
  assert spending["worker 0"] == Spending(1, 1500, pytest.approx(0.007))
  assert workers.client.activity.calls == {"worker 0": 1, "worker 1": 4}


async def test_a_run_that_comes_later_shares_the_answer_that_is_there(workers):
  group = RunGroup()
  (first,) = await run_all(workers, ONE, group=group)
  (later,) = await run_all(workers, ONE, group=group)
  assert (later.answer, later.calls[0].source, workers.hits) == (first.answer, "group", 1)


async def test_two_steps_that_are_the_same_in_one_plan_are_two_calls(workers):
  twice = (*ONE, *ONE, (1, "Do B.", (0, 1)))
  transcripts = await run_all(workers, twice, twice, ONE, group=RunGroup())
  assert len(workers.conversations("w0")) == 2
  assert len({body["seed"] for body in workers.bodies if body["model"] == "w0"}) == 2
  sources = [call.source for transcript in transcripts for call in transcript.calls
             if call.worker == "worker 0"]
  assert sorted(sources) == ["endpoint", "endpoint", "group", "group", "group"]
  assert sum(transcript.usage.cost for transcript in transcripts) == pytest.approx(4 * 0.007)


@pytest.mark.parametrize("other", [((1, "Do A."),), ((0, "Do B."),)], ids=["worker", "subtask"])
async def test_another_worker_or_subtask_is_another_call(workers, other):
  await run_all(workers, ONE, other, group=RunGroup())
  assert workers.hits == 2


async def test_steps_that_see_others_are_never_shared(workers):
  steps = (*ONE, (1, "Do B.", (0,)), (1, "Do B."))
  await run_all(workers, steps, steps, group=RunGroup())
  assert [len(workers.conversations(model)) for model in ("w0", "w1")] == [1, 3]


@pytest.mark.parametrize("group", [RunGroup, lambda: None])
async def test_other_groups_share_nothing(workers, group):
  await asyncio.gather(*(run_all(workers, ONE, group=group()) for _ in range(3)))
  assert workers.hits == 3


@pytest.mark.parametrize(("status", "outcome", "hits"), [
    (400, "refused", 1), (503, "unavailable", 2)])
async def test_a_failure_is_shared_too(workers, status, outcome, hits):
  workers.behaviours["w0"] = reply({}, status)
  transcripts = await run_all(workers, ONE, ONE, group=RunGroup())
  assert [transcript.calls[0].outcome for transcript in transcripts] == [outcome] * 2
  assert [transcript.calls[0].attempts for transcript in transcripts] == [hits, 0]
  assert workers.hits == hits


async def test_the_others_get_the_answer_though_the_run_that_asked_first_is_cancelled(workers):
  release = held(workers, "w0")
  first, *others = start(workers, *[ONE] * 3, group=RunGroup())
  await until(lambda: workers.in_flight == 1)
  first.cancel()
  await asyncio.wait([first])
  release.set()
  transcripts = await asyncio.gather(*others)
  assert first.cancelled()
  assert [transcript.answer for transcript in transcripts] == ["held"] * 2
  assert (workers.hits, workers.gone) == (1, [])
  # It was paid for, and one of those who got it says so.
  assert [transcript.calls[0].source for transcript in transcripts] == ["endpoint", "group"]
  assert [transcript.usage.cost for transcript in transcripts] == [pytest.approx(0.007), 0]


async def test_a_shared_call_is_given_up_once_nobody_waits_for_it_and_can_be_made_again(workers):
  held(workers, "w0")
  group = RunGroup()
  runs = start(workers, *[ONE] * 3, group=group)
  await until(lambda: workers.in_flight == 1)
  for each in runs:
    each.cancel()
  await asyncio.wait(runs)
  await until(lambda: not workers.in_flight)
  assert (workers.hits, workers.gone) == (1, ["w0"])
  workers.behaviours.clear()
  (again,) = await run_all(workers, ONE, group=group)
  assert (again.answer, again.calls[0].source, workers.hits) == ("answer of w0", "endpoint", 2)


@pytest.mark.parametrize("options", [
    {"max_in_flight": 1}, {"worker": {"limits": Limits(concurrent=1)}}], ids=["all", "a worker's"])
async def test_a_small_group_that_comes_late_takes_turns_with_a_large_one(workers, options):
  release = held(workers, "w0")
  async with workers.open(**options) as client:
    large = start(workers, *[ONE] * 9, group=RunGroup(), client=client, share=False, question="A")
    await until(lambda: workers.in_flight == 1)
    small = start(workers, *[ONE] * 2, group=RunGroup(), client=client, share=False, question="B")
    for _ in range(20):
      await asyncio.sleep(0)
    release.set()
    await asyncio.gather(*large, *small)
  order = "".join(turns[0][1].split()[1] for turns in workers.conversations("w0"))
  assert order == "AABABAAAAAA"
  assert workers.most_in_flight == 1


async def test_runs_without_a_group_take_turns_with_a_large_one(workers):
  release = held(workers, "w0")
  async with workers.open(max_in_flight=1) as client:
    large = start(workers, *[ONE] * 5, group=RunGroup(), client=client, share=False, question="A")
    await until(lambda: workers.in_flight == 1)
    alone = [*start(workers, ONE, group=None, client=client, question="B"),
             *start(workers, ONE, group=None, client=client, question="C")]
    for _ in range(20):
      await asyncio.sleep(0)
    release.set()
    await asyncio.gather(*large, *alone)
  order = "".join(turns[0][1].split()[1] for turns in workers.conversations("w0"))
  assert order == "AABCAAA"
