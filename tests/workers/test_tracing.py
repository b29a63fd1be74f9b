"""Spans of workflows, steps and requests."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from conductor_jax.errors import UserError
from conductor_jax.workers import tracing
from conductor_jax.workers.journal import Journal
from conductor_jax.workflows.executor import Executor, RunGroup
from conductor_jax.workflows.workflow import Step, Workflow
from tests.workers.endpoint import Endpoint, client_of, completion, hang, reply, serve, spec

trace = pytest.importorskip("opentelemetry.trace")
pytest.importorskip("opentelemetry.sdk")

CANARY = "sk-canary-0123456789abcdef"
ONE = Workflow((Step(0, "Do A."),))
JOIN = Workflow((Step(0, "Do A."), Step(1, "Do B."), Step(0, "Do C.", (0, 1))))


@pytest.fixture
def exporter(monkeypatch):
  """Spans that have ended, in memory; the provider that is set for all is left as it is."""
  from opentelemetry.sdk.trace import TracerProvider
  from opentelemetry.sdk.trace.export import SimpleSpanProcessor
  from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

  provider, exporter = TracerProvider(), InMemorySpanExporter()
  provider.add_span_processor(SimpleSpanProcessor(exporter))
  monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
  return exporter


def workers(endpoint, **changes):
  return [spec(endpoint.base_url, name=name, model=f"model {name}", **changes) for name in "ab"]


async def run(endpoint, *workflows, group=None, question="How much is it?", options=None,
              deadline=None, share=False, **changes):
  async with client_of(*workers(endpoint, **changes), **(options or {})) as client:
    executor = Executor(
        client, context="messages", deadline=deadline, share_identical_calls=share)
    return await asyncio.gather(*(
        executor.run(workflow, question, seed=seed, group=group)
        for seed, workflow in enumerate(workflows)))


def named(exporter, name):
  return [span for span in exporter.get_finished_spans() if span.name == name]


def failed(span):
  """The kind of error that a span tells, None if it tells none."""
  is_error = span.status.status_code is trace.StatusCode.ERROR
  assert is_error is ("error.type" in span.attributes)
  return span.attributes.get("error.type")


async def test_a_workflow_has_a_span_its_steps_have_theirs_below_and_requests_below_those(
    endpoint, exporter):
  await run(endpoint, JOIN)
  spans = exporter.get_finished_spans()
  assert Counter(span.name for span in spans) == {
      "invoke_workflow": 1, "invoke_agent a": 2, "invoke_agent b": 1, "chat model a": 2,
      "chat model b": 1}
  assert len({span.context.trace_id for span in spans}) == 1
  by_id = {span.context.span_id: span for span in spans}
  for span in spans:
    if span.name == "invoke_workflow":
      assert span.parent is None
      continue
    parent = by_id[span.parent.span_id]
    if span.name.startswith("invoke_agent"):
      assert parent.name == "invoke_workflow"
    else:
      assert parent.name == span.name.replace("chat model", "invoke_agent")
    assert parent.start_time <= span.start_time <= span.end_time <= parent.end_time


async def test_workflows_that_run_at_the_same_time_are_traces_of_their_own(endpoint, exporter):
  endpoint.script = [reply(completion(), seconds=0.01 * (i % 3)) for i in range(24)]
  await run(endpoint, *[JOIN] * 8)
  spans = exporter.get_finished_spans()
  sizes = Counter(span.context.trace_id for span in spans)
  assert sorted(sizes.values()) == [7] * 8
  by_id = {span.context.span_id: span for span in spans}
  chats = [span for span in spans if span.name.startswith("chat")]
  steps = Counter(by_id[chat.parent.span_id].context.span_id for chat in chats)
  assert (len(chats), set(steps.values())) == (24, {1})
  for chat in chats:
    assert by_id[chat.parent.span_id].context.trace_id == chat.context.trace_id


async def test_spans_hold_what_the_conventions_name(endpoint, exporter):
  await run(endpoint, ONE, sampling={"max_tokens": 99, "temperature": 0.5})
  (workflow,), (step,) = named(exporter, "invoke_workflow"), named(exporter, "invoke_agent a")
  (chat,) = named(exporter, "chat model a")
  assert dict(workflow.attributes) == {
      "gen_ai.operation.name": "invoke_workflow", "conductor.workflow.steps": 1}
  assert dict(step.attributes) == {
      "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a",
      "conductor.step.index": 0}
  port = int(endpoint.base_url.split(":")[2].removesuffix("/v1"))
  assert dict(chat.attributes) == {
      "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai",
      "gen_ai.request.model": "model a", "gen_ai.request.max_tokens": 99,
      "gen_ai.request.temperature": 0.5, "gen_ai.request.seed": endpoint.bodies[0]["seed"],
      "gen_ai.usage.input_tokens": 1000, "gen_ai.usage.output_tokens": 500,
      "gen_ai.response.finish_reasons": ("stop",), "server.address": "127.0.0.1",
      "server.port": port}
  kinds = [span.kind for span in (workflow, step, chat)]
  assert kinds == [trace.SpanKind.INTERNAL, trace.SpanKind.INTERNAL, trace.SpanKind.CLIENT]
  assert [failed(span) for span in (workflow, step, chat)] == [None] * 3


async def test_the_names_are_those_of_the_conventions_package():
  names = pytest.importorskip("opentelemetry.semconv._incubating.attributes.gen_ai_attributes")
  assert {"chat", "invoke_agent", "invoke_workflow"} <= {
      value.value for value in names.GenAiOperationNameValues}
  for name in ("OPERATION_NAME", "PROVIDER_NAME", "AGENT_NAME", "REQUEST_MODEL",
               "REQUEST_MAX_TOKENS", "REQUEST_TEMPERATURE", "REQUEST_SEED", "USAGE_INPUT_TOKENS",
               "USAGE_OUTPUT_TOKENS", "RESPONSE_FINISH_REASONS"):
    value = getattr(names, f"GEN_AI_{name}")
    parts = value.removeprefix("gen_ai.").upper().replace(".", "_")
    assert parts == name


@pytest.mark.parametrize(("dialect", "provider"), [
    ("openai-reasoning", "openai"), ("gemini", "gcp.gemini"), ("anthropic", "anthropic"),
    ("vllm", "vllm")])
async def test_a_provider_is_called_what_the_conventions_call_it(
    endpoint, exporter, dialect, provider):
  await run(endpoint, ONE, dialect=dialect, sampling={"max_tokens": 99})
  (chat,) = named(exporter, "chat model a")
  assert chat.attributes["gen_ai.provider.name"] == provider
  assert chat.attributes["gen_ai.request.max_tokens"] == 99


async def test_every_attempt_is_a_span_of_its_own(endpoint, exporter):
  endpoint.script = [reply({}, 503), reply(completion("", "length"))]
  await run(endpoint, ONE)
  first, second = named(exporter, "chat model a")
  assert [failed(span) for span in (first, second)] == ["unavailable", None]
  assert second.attributes["gen_ai.response.finish_reasons"] == ("length",)
  (step,) = named(exporter, "invoke_agent a")
  assert failed(step) is None
  assert first.parent.span_id == second.parent.span_id == step.context.span_id


@pytest.mark.parametrize(("status", "outcome"), [(400, "refused"), (500, "unavailable")])
async def test_a_failure_is_told_by_the_spans_it_concerns(endpoint, exporter, status, outcome):
  endpoint.script = [reply({}, status)]
  await run(endpoint, JOIN, options={"max_attempts": 1})
  assert [failed(span) for span in named(exporter, "chat model a")] == [outcome]
  assert [failed(span) for span in named(exporter, "invoke_agent a")] == [outcome]
  # Of a step that was skipped there is no span.
  assert [failed(span) for span in named(exporter, "invoke_workflow")] == ["skipped"]


async def test_what_is_given_up_is_an_error(endpoint, exporter):
  endpoint.script = [hang]
  await run(endpoint, ONE, deadline=0.2)
  assert failed(*named(exporter, "chat model a")) == "CancelledError"
  assert failed(*named(exporter, "invoke_agent a")) == "unavailable"
  assert failed(*named(exporter, "invoke_workflow")) == "unavailable"


async def test_a_run_that_is_cancelled_ends_its_spans(endpoint, exporter):
  endpoint.script = [hang]
  task = asyncio.create_task(run(endpoint, JOIN))
  async with asyncio.timeout(10):
    while endpoint.in_flight < 2:
      await asyncio.sleep(0.001)
  task.cancel()
  await asyncio.wait([task])
  spans = exporter.get_finished_spans()
  assert (len(spans), {failed(span) for span in spans}) == (5, {"CancelledError"})


async def test_a_shared_call_is_one_request(endpoint, exporter):
  await run(endpoint, *[ONE] * 3, group=RunGroup(), share=True)
  counts = Counter(span.name for span in exporter.get_finished_spans())
  assert counts == {"invoke_workflow": 3, "invoke_agent a": 3, "chat model a": 1}


async def test_a_replayed_call_is_no_request(endpoint, exporter, tmp_path):
  for _ in range(2):
    async with Journal(tmp_path / "journal.sqlite") as journal:
      await run(endpoint, ONE, options={"journal": journal})
  counts = Counter(span.name for span in exporter.get_finished_spans())
  assert counts == {"invoke_workflow": 2, "invoke_agent a": 2, "chat model a": 1}


async def test_no_question_answer_thought_error_or_key_is_in_a_span(
    endpoint, exporter, monkeypatch):
  monkeypatch.setenv("SOLVER_KEY", CANARY)
  plan = Workflow((Step(0, f"Do {CANARY}."), Step(1, f"Do {CANARY}.", (0,))))
  message = {"reasoning": f"I think {CANARY}"}

  async def echo(request):
    return await reply({"error": {"message": await request.text()}}, 400)(request)

  async def break_the_connection(request):
    request.transport.write(f"HTTP/1.1 {CANARY}\r\n\r\n".encode())
    request.transport.close()
    raise ConnectionResetError

  for script in ([reply(completion(f"It is {CANARY}", message=message))], [echo],
                 [reply({"error": CANARY}, 503)], [break_the_connection]):
    endpoint.script = script
    await run(endpoint, plan, question=CANARY, api_key_env="SOLVER_KEY",
              options={"max_attempts": 1})
  # An exception's message is no better: this one names a file that cannot be made.
  async with Journal(Path("/proc") / CANARY) as journal:
    with pytest.raises(UserError, match=CANARY):
      await run(endpoint, plan, question=CANARY, options={"journal": journal})
  spans = exporter.get_finished_spans()
  assert Counter(span.name for span in spans) == {
      "invoke_workflow": 5, "invoke_agent a": 5, "invoke_agent b": 1, "chat model a": 4,
      "chat model b": 1}
  assert {failed(span) for span in spans} == {
      None, "refused", "unavailable", "skipped", "UserError"}
  assert "canary" not in "".join(span.to_json() for span in spans)


async def test_nothing_is_recorded_where_no_provider_is_set_up(endpoint):
  with tracing.Spans().workflow(1) as span:
    assert span is None
  (transcript,) = await run(endpoint, JOIN)
  assert transcript.answer == "four"


async def test_it_works_without_the_package(monkeypatch):
  monkeypatch.setattr(tracing, "trace", None)
  async with serve(Endpoint()) as endpoint:
    (transcript,) = await run(endpoint, JOIN)
    endpoint.script = [reply({}, 400)]
    (failure,) = await run(endpoint, JOIN)
  assert (transcript.answer, endpoint.hits) == ("four", 5)
  assert [call.outcome for call in failure.calls] == ["refused", "refused", "skipped"]
