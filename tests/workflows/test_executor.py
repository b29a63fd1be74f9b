import asyncio

import pytest
from aiohttp import web

from conductor_jax.workers.call import Usage
from conductor_jax.workers.client import PoolClient
from conductor_jax.workers.pool import Pool, WorkerSpec
from conductor_jax.workflows.context import inlined_context, message_context
from conductor_jax.workflows.executor import Executor, call_seed
from conductor_jax.workflows.workflow import Step, Workflow

QUESTION = "How much is it?"


class Workers:
  """An endpoint of the workers "w0" to "w3"; each behaves as scripted, or answers by its name."""

  def __init__(self):
    self.requests = []  # (model, body) in the order they arrive
    self.events = []  # "+w0" when a request arrives, "-w0" when its answer leaves
    self.in_flight = 0
    self.most_in_flight = 0
    self.behaviours = {}
    self.disconnected = []

  async def handle(self, request):
    body = await request.json()
    model = body["model"]
    self.requests.append((model, body))
    self.events.append(f"+{model}")
    self.in_flight += 1
    self.most_in_flight = max(self.most_in_flight, self.in_flight)
    try:
      await asyncio.sleep(0.02)
      if model in self.behaviours:
        return await self.behaviours[model]()
      return answer(f"answer of {model}")
    except asyncio.CancelledError:
      self.disconnected.append(model)
      raise
    finally:
      self.in_flight -= 1
      self.events.append(f"-{model}")

  def contents(self, model):
    """Role and content of every turn of the only request to a model."""
    bodies = [body for name, body in self.requests if name == model]
    assert len(bodies) == 1
    return [(turn["role"], turn["content"]) for turn in bodies[0]["messages"]]


def answer(text, reason="stop"):
  choice = {"message": {"role": "assistant", "content": text}, "finish_reason": reason}
  usage = {"prompt_tokens": 100, "completion_tokens": 10}
  return web.json_response({"choices": [choice], "usage": usage})


def behave(status=200, text="", reason="stop"):

  async def respond():
    return answer(text, reason) if status == 200 else web.Response(status=status)

  return respond


@pytest.fixture
async def workers():
  served = Workers()
  app = web.Application()
  app.router.add_post("/v1/chat/completions", served.handle)
  runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
  await runner.setup()
  await web.TCPSite(runner, "127.0.0.1", 0).start()
  base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
  pool = Pool(tuple(
      WorkerSpec(f"worker {i}", base_url, f"w{i}", price_in=1.0, price_out=10.0) for i in range(4)))
  async with PoolClient(pool, request_timeout=5.0, max_attempts=2, backoff=0.001) as client:
    served.client = client
    yield served
  await runner.cleanup()


async def run(workers, *steps, context="messages", seed=0):
  workflow = Workflow(tuple(Step(*step) for step in steps))
  transcript = await Executor(workers.client, context=context).run(workflow, QUESTION, seed=seed)
  assert transcript.workflow is workflow
  assert len(transcript.calls) == len(steps)
  return transcript


OPEN_PLAN = ((0, "Do A."), (1, "Do B."), (2, "Do C.", (0, 1)))


async def test_messages_show_seen_steps_as_alternating_turns(workers):
  await run(workers, *OPEN_PLAN)
  assert workers.contents("w0") == [("user", "Question:\nHow much is it?\n\nSubtask:\nDo A.")]
  assert workers.contents("w2") == [
      ("user", "Question:\nHow much is it?\n\nSubtask:\nDo A."),
      ("assistant", "answer of w0"),
      ("user", "Subtask:\nDo B."),
      ("assistant", "answer of w1"),
      ("user", "Subtask:\nDo C.")]


async def test_inlined_shows_seen_steps_in_one_user_turn(workers):
  await run(workers, *OPEN_PLAN, context="inlined")
  assert workers.contents("w0") == [("user", "Question:\nHow much is it?\n\nYour subtask:\nDo A.")]
  assert workers.contents("w2") == [(
      "user",
      "Question:\nHow much is it?\n\n"
      "Subtask:\nDo A.\n\nResponse:\nanswer of w0\n\n"
      "Subtask:\nDo B.\n\nResponse:\nanswer of w1\n\n"
      "Your subtask:\nDo C.")]


@pytest.mark.parametrize("context", ["messages", "inlined"])
async def test_a_closed_access_list_shows_what_a_first_step_would_see(workers, context):
  await run(workers, (0, "Do A."), (1, "Do B.", (0,)), (2, "Do C."), context=context)
  alone = {"messages": message_context, "inlined": inlined_context}[context](QUESTION, [], "Do C.")
  assert workers.contents("w2") == [(turn["role"], turn["content"]) for turn in alone]
  text = workers.contents("w2")[0][1]
  assert all(hidden not in text for hidden in ("Do A.", "Do B.", "answer of", "Response"))


@pytest.mark.parametrize("context", ["messages", "inlined"])
async def test_a_partial_access_list_shows_only_the_steps_it_names(workers, context):
  await run(workers, (0, "Do A."), (1, "Do B."), (2, "Do C.", (1,)), context=context)
  text = "\n".join(content for _, content in workers.contents("w2"))
  assert "answer of w1" in text and "Do B." in text
  assert "answer of w0" not in text and "Do A." not in text


@pytest.mark.parametrize("count", range(4))
def test_turns_alternate_and_begin_and_end_with_the_user(count):
  turns = message_context("Q", [(f"s{i}", f"a{i}") for i in range(count)], "own")
  assert [turn["role"] for turn in turns] == ["user", "assistant"] * count + ["user"]


@pytest.mark.parametrize("blank", ["", " \n"])
async def test_an_empty_answer_is_shown_as_such_and_is_an_answer(workers, blank):
  workers.behaviours["w0"] = behave(text=blank)
  transcript = await run(workers, (0, "Do A."), (1, "Do B.", (0,)))
  assert workers.contents("w1")[1] == ("assistant", "(empty)")
  assert transcript.answer == "answer of w1"
  alone = await run(workers, (0, "Do A."))
  assert alone.answer == blank


async def test_independent_steps_run_at_the_same_time(workers):
  together = asyncio.Barrier(3)

  def meet(name):

    async def respond():
      await together.wait()  # would hang if the three did not overlap
      return answer(f"answer of {name}")

    return respond

  workers.behaviours = {name: meet(name) for name in ("w0", "w1", "w2")}
  transcript = await run(workers, (0, "a"), (1, "b"), (2, "c"), (3, "d", (0, 1, 2)))
  assert workers.most_in_flight == 3
  assert workers.events.index("+w3") > max(workers.events.index(f"-w{i}") for i in range(3))
  assert transcript.answer == "answer of w3"


async def test_a_step_waits_for_what_it_sees_and_for_nothing_else(workers):
  w3_done = asyncio.Event()

  async def last_of_all():
    await w3_done.wait()
    return answer("late")

  async def finish():
    w3_done.set()
    return answer("early")

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
  assert transcript.usage == Usage(300, 30, pytest.approx(3 * (100 * 1e-6 + 10 * 10e-6)))
  assert transcript.answer == "answer of w2"
  assert not transcript.unavailable


@pytest.mark.parametrize(("status", "outcome", "unavailable"), [
    (400, "refused", False), (503, "unavailable", True)])
async def test_a_failed_step_costs_only_what_depends_on_it(workers, status, outcome, unavailable):
  workers.behaviours["w0"] = behave(status)
  transcript = await run(
      workers, (0, "a"), (1, "b"), (2, "c", (0, 1)), (2, "d", (2,)), (3, "e", (1,)))
  assert [call.outcome for call in transcript.calls] == [
      outcome, "answered", "skipped", "skipped", "answered"]
  assert [call.attempts for call in transcript.calls[2:4]] == [0, 0]
  assert "worker 0" in transcript.calls[2].error
  assert "w2" not in [model for model, _ in workers.requests]
  assert transcript.answer == "answer of w3"
  assert transcript.usage.prompt_tokens == 200
  assert transcript.unavailable is unavailable


@pytest.mark.parametrize("status", [400, 503])
async def test_there_is_no_answer_if_the_last_step_brought_none(workers, status):
  workers.behaviours["w1"] = behave(status)
  assert (await run(workers, (0, "a"), (1, "b", (0,)))).answer is None
  assert (await run(workers, (1, "a"), (0, "b", (0,)))).answer is None


async def test_a_truncated_answer_is_shown_and_counts(workers):
  workers.behaviours["w0"] = behave(text="half an ans", reason="length")
  transcript = await run(workers, (0, "a"), (0, "b", (0,)))
  assert [call.outcome for call in transcript.calls] == ["truncated", "truncated"]
  assert transcript.answer == "half an ans"
  assert ("assistant", "half an ans") in [
      (turn["role"], turn["content"]) for turn in workers.requests[1][1]["messages"]]


async def test_cancelling_a_run_ends_all_its_calls(workers):
  forever = asyncio.Event()
  workers.behaviours = {"w0": forever.wait, "w1": forever.wait}
  task = asyncio.create_task(run(workers, (0, "a"), (1, "b"), (2, "c", (0,))))
  while workers.in_flight < 2:
    await asyncio.sleep(0.001)
  task.cancel()
  with pytest.raises(asyncio.CancelledError):
    await task
  while workers.in_flight:
    await asyncio.sleep(0.001)
  assert sorted(workers.disconnected) == ["w0", "w1"]
  assert "+w2" not in workers.events


async def test_an_error_of_the_program_is_raised_and_ends_the_other_calls(workers):
  workers.behaviours["w0"] = asyncio.Event().wait
  with pytest.raises(IndexError):
    await run(workers, (0, "a"), (9, "no such worker"))
  while workers.in_flight:
    await asyncio.sleep(0.001)
  assert "w9" not in [model for model, _ in workers.requests]


async def test_every_call_gets_its_own_seed_which_a_second_run_repeats(workers):
  for _ in range(2):
    await run(workers, *OPEN_PLAN, seed=42)
  await run(workers, *OPEN_PLAN, seed=43)
  seeds = [sorted(body["seed"] for _, body in workers.requests[i:i + 3]) for i in (0, 3, 6)]
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
