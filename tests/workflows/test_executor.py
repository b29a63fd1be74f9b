import asyncio

import pytest

from conductor_jax.workers.call import Usage
from conductor_jax.workers.pool import Limits
from conductor_jax.workflows.executor import Executor, call_seed
from tests.workers.endpoint import completion, reply
from tests.workflows.four_workers import OPEN_PLAN, run, until

# Seconds in which workers that answer do so, and after which calls of the others are given up.
DEADLINE = 0.5


async def hang(request):
  await asyncio.Event().wait()


@pytest.mark.parametrize("blank", ["", " \n"])
async def test_an_empty_answer_is_shown_as_such_and_is_an_answer(workers, blank):
  workers.behaviours["w0"] = reply(completion(blank))
  transcript = await run(workers, (0, "Do A."), (1, "Do B.", (0,)))
  assert workers.contents("w1")[1] == ("assistant", "(empty)")
  assert transcript.answer == "answer of w1"
  alone = await run(workers, (0, "Do A."))
  assert alone.answer == blank


async def test_independent_steps_run_at_the_same_time(workers):
  together = asyncio.Barrier(3)

  def meet(name):

    async def respond(request):
      await together.wait()  # would hang if the three did not overlap
      return await reply(completion(f"answer of {name}"))(request)

    return respond

  workers.behaviours = {name: meet(name) for name in ("w0", "w1", "w2")}
  transcript = await run(workers, (0, "a"), (1, "b"), (2, "c"), (3, "d", (0, 1, 2)))
  assert workers.most_in_flight == 3
  assert workers.events.index("+w3") > max(workers.events.index(f"-w{i}") for i in range(3))
  assert transcript.answer == "answer of w3"


async def test_a_step_waits_for_what_it_sees_and_for_nothing_else(workers):
  w3_done = asyncio.Event()

  async def last_of_all(request):
    await w3_done.wait()
    return await reply(completion("late"))(request)

  async def finish(request):
    w3_done.set()
    return await reply(completion("early"))(request)

  workers.behaviours = {"w1": last_of_all, "w3": finish}
  await run(workers, (0, "a"), (1, "slow"), (3, "c", (0,)))
  assert workers.events.index("+w3") > workers.events.index("-w0")
  assert workers.events.index("-w3") < workers.events.index("-w1")


async def test_dependent_steps_run_one_after_the_other(workers):
  await run(workers, (0, "a"), (1, "b", (0,)), (2, "c", (1,)))
  assert workers.events == ["+w0", "-w0", "+w1", "-w1", "+w2", "-w2"]


async def test_records_stand_in_step_order_and_usage_is_their_sum(workers):
  transcript = await run(workers, *OPEN_PLAN)
  assert [call.worker for call in transcript.calls] == ["worker 0", "worker 1", "worker 2"]
  assert transcript.usage == Usage(3000, 1500, pytest.approx(3 * 0.007))
  assert transcript.answer == "answer of w2"
  assert not transcript.unavailable


@pytest.mark.parametrize(("status", "outcome", "unavailable"), [
    (400, "refused", False), (503, "unavailable", True)])
async def test_a_failed_step_costs_only_what_depends_on_it(workers, status, outcome, unavailable):
  workers.behaviours["w0"] = reply({}, status)
  transcript = await run(
      workers, (0, "a"), (1, "b"), (2, "c", (0, 1)), (2, "d", (2,)), (3, "e", (1,)))
  assert [call.outcome for call in transcript.calls] == [
      outcome, "answered", "skipped", "skipped", "answered"]
  assert [call.attempts for call in transcript.calls[2:4]] == [0, 0]
  assert "worker 0" in transcript.calls[2].error
  assert "+w2" not in workers.events
  assert transcript.answer == "answer of w3"
  assert transcript.usage.prompt_tokens == 2000
  assert transcript.unavailable is unavailable


@pytest.mark.parametrize("status", [400, 503])
async def test_there_is_no_answer_if_the_last_step_brought_none(workers, status):
  workers.behaviours["w1"] = reply({}, status)
  assert (await run(workers, (0, "a"), (1, "b", (0,)))).answer is None
  assert (await run(workers, (1, "a"), (0, "b", (0,)))).answer is None


async def test_a_truncated_answer_is_shown_and_counts(workers):
  workers.behaviours["w0"] = reply(completion("half an ans", "length"))
  transcript = await run(workers, (0, "a"), (0, "b", (0,)))
  assert [call.outcome for call in transcript.calls] == ["truncated", "truncated"]
  assert transcript.answer == "half an ans"
  assert ("assistant", "half an ans") in workers.conversations("w0")[1]


async def test_cancelling_a_run_ends_all_its_calls(workers):
  workers.behaviours = {"w0": hang, "w1": hang}
  task = asyncio.create_task(run(workers, (0, "a"), (1, "b"), (2, "c", (0,))))
  await until(lambda: workers.in_flight == 2)
  task.cancel()
  with pytest.raises(asyncio.CancelledError):
    await task
  await until(lambda: not workers.in_flight)
  assert sorted(workers.gone) == ["w0", "w1"]
  assert "+w2" not in workers.events


async def test_an_error_of_the_program_is_raised_and_ends_the_other_calls(workers):
  workers.behaviours["w0"] = hang
  with pytest.raises(IndexError):
    await run(workers, (0, "a"), (9, "no such worker"))
  await until(lambda: not workers.in_flight)
  assert "+w9" not in workers.events


async def test_every_call_gets_its_own_seed_which_a_second_run_repeats(workers):
  for _ in range(2):
    await run(workers, *OPEN_PLAN, seed=42)
  await run(workers, *OPEN_PLAN, seed=43)
  seeds = [sorted(body["seed"] for body in workers.bodies[i:i + 3]) for i in (0, 3, 6)]
  assert seeds[0] == sorted(call_seed(42, index) for index in range(3))
  assert seeds[0] == seeds[1]
  assert len({*seeds[0], *seeds[2]}) == 6


def test_seeds_are_distinct_31_bit_numbers():
  seeds = {call_seed(seed, index) for seed in (*range(200), 2**63, -1) for index in range(5)}
  assert len(seeds) == 202 * 5
  assert all(0 <= seed < 2**31 for seed in seeds)
  assert max(seeds) > 2**30


def test_seeds_are_the_same_in_every_process():
  assert [call_seed(seed, index) for seed in (0, 7) for index in range(3)] == [
      642837039, 544083603, 1291550691, 832369889, 603973904, 1848711987]


def test_an_unknown_context_is_named(workers):
  with pytest.raises(ValueError, match="inline'"):
    Executor(workers.client, context="inline")


async def test_calls_are_given_up_at_the_deadline_and_later_steps_are_skipped(workers):
  workers.behaviours["w0"] = hang
  transcript = await run(
      workers, (0, "a"), (1, "b"), (2, "c", (0,)), (3, "d", (1,)), (1, "e", (0, 3)),
      deadline=DEADLINE)
  assert [call.outcome for call in transcript.calls] == [
      "unavailable", "answered", "skipped", "answered", "skipped"]
  given_up = transcript.calls[0]
  assert given_up.error == "the workflow's deadline passed"
  assert (given_up.attempts, given_up.possibly_billed) == (1, 1)
  assert given_up.usage.cost == 0 < given_up.usage.possible_cost
  assert given_up.latency >= 0.9 * DEADLINE
  assert transcript.unavailable and transcript.answer is None
  await until(lambda: not workers.in_flight)
  assert workers.gone == ["w0"]  # its connection was closed
  assert workers.hits == 3


async def test_a_call_given_up_after_a_failure_has_two_attempts(workers):
  async def fail_then_hang(request):
    return await (reply({}, 503) if workers.hits == 1 else hang)(request)

  workers.behaviours["w0"] = fail_then_hang
  (call,) = (await run(workers, (0, "a"), deadline=DEADLINE)).calls
  assert (call.outcome, call.attempts, call.possibly_billed) == ("unavailable", 2, 1)
  assert workers.hits == 2


async def test_a_call_that_waits_to_try_again_is_given_up_too(workers):
  workers.behaviours["w0"] = reply({}, 429, {"Retry-After": "30"})
  (call,) = (await run(workers, (0, "a"), deadline=DEADLINE)).calls
  assert (call.outcome, call.attempts, call.possibly_billed) == ("unavailable", 1, 0)
  assert call.usage == Usage()


async def test_a_call_that_waits_for_its_turn_at_the_deadline_was_never_made(workers):
  workers.behaviours["w0"] = hang
  async with workers.open(worker={"limits": Limits(concurrent=1)}) as client:
    transcript = await run(workers, (0, "a"), (0, "b"), client=client, deadline=DEADLINE)
    assert [call.outcome for call in transcript.calls] == ["unavailable"] * 2
    assert [call.attempts for call in transcript.calls] == [1, 0]
    assert [call.possibly_billed for call in transcript.calls] == [1, 0]
    assert workers.hits == 1
    # The place is free again.
    workers.behaviours.clear()
    assert (await run(workers, (0, "c"), client=client)).answer == "answer of w0"


async def test_a_deadline_is_that_of_its_workflow_alone(workers):
  late = asyncio.Event()

  async def answer_late(request):
    await late.wait()
    return await reply(completion("late"))(request)

  workers.behaviours["w0"] = answer_late
  other = asyncio.create_task(run(workers, (0, "a"), (1, "b", (0,))))
  first = await run(workers, (0, "a"), (1, "b", (0,)), deadline=DEADLINE)
  assert [call.outcome for call in first.calls] == ["unavailable", "skipped"]
  late.set()
  assert [call.outcome for call in (await other).calls] == ["answered", "answered"]
