"""An endpoint repeats the key wherever it can; the key is looked for wherever it could stay."""

import asyncio
import json
import logging
import sqlite3
import traceback
from contextlib import closing
from dataclasses import asdict

import numpy as np
import pytest
from aiohttp import web

from conductor_jax.errors import UserError
from conductor_jax.reporting.report import write_report
from conductor_jax.rollouts import Rollout, Turn
from conductor_jax.tasks.task import Task
from conductor_jax.workers.journal import Journal
from conductor_jax.workers.offer import Offer
from conductor_jax.workers.pool import Pool
from conductor_jax.workflows.executor import Executor
from conductor_jax.workflows.workflow import ParsedPlan, Step, Workflow
from tests.workers.endpoint import (
    DEAD,
    MESSAGES,
    call,
    client_of,
    completion,
    hang,
    raw,
    reply,
    reset,
    spec,
)

CANARY = "sk-canary/0123456789+abcdefgh="
ECHO = {"error": {"message": f"Incorrect API key provided: {CANARY}."}}
ESCAPED = json.dumps(ECHO).replace("/", "\\/").encode()
UNICODE = json.dumps(ECHO).replace("+", "\\u002B").replace("=", "\\u003D").encode()


def events(*texts):
  chunks = [{"choices": [{"delta": {"content": text}}]} for text in texts]
  return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)


ECHOES = {
    "nothing": reply(completion()),
    **{f"HTTP {status}": reply(ECHO, status, {"X-Key": CANARY})
       for status in (400, 401, 403, 404, 429, 500)},
    "headers": reply(completion(), headers={"X-Key": CANARY, "Set-Cookie": f"key={CANARY}"}),
    "redirect": reply({}, 307, {"Location": f"http://127.0.0.1:1/?key={CANARY}"}),
    "error": reply(ECHO),
    "answer": reply(completion(f"Authorization: Bearer {CANARY}")),
    "parts": reply(completion([{"type": "text", "text": part}
                               for part in (CANARY[:9], CANARY[9:20], CANARY[20:])])),
    "reasoning": reply(completion(message={"reasoning": CANARY})),
    "thinking": reply(completion(f"<think>{CANARY}</think>four")),
    "cut line": reply(("x" * 285 + CANARY).encode(), 400),
    "escaped": reply(ESCAPED, 500),
    "unicode": reply(UNICODE, 500),
    "escaped answer": reply(ESCAPED[:-1] + b', "choices": null}'),
    "address": reply(b"see http://h/?key=sk-canary%2F0123456789%2Babcdefgh%3D", 400),
    "no HTTP": raw(CANARY.encode() + b"\r\n\r\n"),
    "bad header": raw(f"HTTP/1.1 200 OK\r\nX-Key: {CANARY}\x01\r\n\r\n".encode()),
    "bad status": raw(f"HTTP/1.1 {CANARY} OK\r\n\r\n".encode()),
    "stream": reply(events("It is ", CANARY) + b"data: [DONE]\n\n"),
    "spread stream": reply(events(CANARY[:9], CANARY[9:20], CANARY[20:]) + b"data: [DONE]\n\n"),
    "broken stream": reply(events("It is ", CANARY)),
    "reset": reset,
}


def traces_of_key(text):
  """Parts of the key that stand in a text; eight characters are enough to be one."""
  return {CANARY[i:i + 8] for i in range(len(CANARY) - 7) if CANARY[i:i + 8] in text}


def rollout_of(transcript):
  none = np.zeros(0, np.int32)
  return Rollout(
      Turn(Task("1", "Q", "4", "number", {}), Offer((0,)), none), none, none, none, "", ParsedPlan(
          transcript.workflow, {}), transcript, None, None, None)


@pytest.fixture
def spans(monkeypatch):
  """Spans as they would be exported; none where OpenTelemetry's SDK is not installed."""
  sdk = pytest.importorskip("opentelemetry.sdk.trace")
  from opentelemetry import trace
  from opentelemetry.sdk.trace.export import SimpleSpanProcessor
  from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

  exporter, provider = InMemorySpanExporter(), sdk.TracerProvider()
  provider.add_span_processor(SimpleSpanProcessor(exporter))
  monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
  return exporter


@pytest.fixture
async def debug(caplog):
  """Everything is logged that anybody logs, and what the event loop says of every callback."""
  caplog.set_level(logging.DEBUG)
  loop = asyncio.get_running_loop()
  loop.set_debug(True)
  loop.slow_callback_duration = 0.0
  return caplog


async def ask_all(endpoint, client, context="messages"):
  """Asks for every echo, and one worker to go on from the answer of the other."""
  for name, echo in ECHOES.items():
    endpoint.script = [echo]
    endpoint.bodies.clear()
    workflow = Workflow((Step(0, f"Do {name}."), Step(1, "Go on.", (0,))))
    yield name, await Executor(client, context=context).run(workflow, "Q", seed=0)


async def test_the_key_is_sent_and_stays_nowhere(endpoint, monkeypatch, tmp_path, debug):
  monkeypatch.setenv("SOLVER_KEY", CANARY)
  specs = [spec(endpoint.base_url, name=name, api_key_env="SOLVER_KEY", stream=name == "b")
           for name in "ab"]
  async with Journal(tmp_path / "journal.sqlite") as journal, client_of(
      *specs, max_attempts=2, journal=journal, breaker_failures=1000) as client:
    shown, rows = [repr(client), repr(vars(client)), repr(client.pool)], []
    async for name, transcript in ask_all(endpoint, client):
      rows.append(rollout_of(transcript).to_json())
      places = {"repr": repr(transcript), "rollout": json.dumps(rows[-1])}
      assert {place for place, text in places.items() if traces_of_key(text)} == set(), name
      shown += places.values()
    assert {headers["Authorization"] for headers in endpoint.headers} == {f"Bearer {CANARY}"}
    spending = {name: asdict(spent) for name, spent in client.budget.spending().items()}
    write_report(tmp_path, {"spending": spending}, repr(client.pool), [], rows)
    files = list(tmp_path.iterdir())
    assert {file.name for file in files} >= {
        "journal.sqlite", "journal.sqlite-wal", "report.html"}
    for file in files:
      assert not traces_of_key(file.read_bytes().decode(errors="replace")), file.name
  assert not traces_of_key((tmp_path / "journal.sqlite").read_bytes().decode(errors="replace"))
  assert not traces_of_key("".join(shown)) and not traces_of_key(debug.text)
  assert "".join(shown).count("[key]") > 20
  assert len(debug.records) > 100  # there were logs to look through


async def test_a_replay_says_of_a_hidden_key_what_the_recording_said(
    endpoint, monkeypatch, tmp_path):
  monkeypatch.setenv("SOLVER_KEY", CANARY)
  worker = spec(endpoint.base_url, api_key_env="SOLVER_KEY", stream=True)
  endpoint.script = [ECHOES["spread stream"], ECHOES["thinking"], ECHOES["answer"]]
  said = []
  for mode in ("record", "replay"):
    async with Journal(tmp_path / "journal.sqlite", mode) as journal, client_of(
        worker, journal=journal) as client:
      records = [await client.call(0, MESSAGES, seed=seed) for seed in range(3)]
    said.append([(record.response, record.reasoning, record.usage) for record in records])
  assert endpoint.hits == 3
  assert said[0] == said[1]
  assert [answer for answer, _, _ in said[0]] == ["[key]", "four", "Authorization: Bearer [key]"]
  assert [reasoning for _, reasoning, _ in said[0]] == ["", "[key]", ""]
  with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as file:
    assert file.execute("SELECT count(*) FROM attempts WHERE outcome = 'answered'").fetchone() == (
        3,)


async def test_no_span_holds_the_key(endpoint, monkeypatch, spans):
  monkeypatch.setenv("SOLVER_KEY", CANARY)
  specs = [spec(endpoint.base_url, name=name, api_key_env="SOLVER_KEY") for name in "ab"]
  async with client_of(*specs, max_attempts=2, breaker_failures=1000) as client:
    async for _ in ask_all(endpoint, client):
      pass
    endpoint.script = [hang]
    endpoint.bodies.clear()
    task = asyncio.create_task(client.call(0, MESSAGES))
    while endpoint.in_flight == 0:
      await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
  finished = spans.get_finished_spans()
  assert sum(span.name == "chat m" for span in finished) > len(ECHOES)
  assert sum(span.name == "invoke_workflow" for span in finished) == len(ECHOES)
  assert not traces_of_key("".join(span.to_json() for span in finished))


async def test_no_exception_shows_the_key(endpoint, monkeypatch, tmp_path, debug):
  monkeypatch.setenv("SOLVER_KEY", CANARY)
  worker = spec(endpoint.base_url, api_key_env="SOLVER_KEY")
  endpoint.script = [ECHOES["answer"], hang]

  async def ask(path, mode="record", seed=0):
    async with Journal(path, mode) as journal, client_of(worker, journal=journal) as client:
      async with asyncio.timeout(0.1 if mode == "record" and seed else 5):
        return await client.call(0, MESSAGES, seed=seed)

  assert (await ask(tmp_path / "journal.sqlite")).response == "Authorization: Bearer [key]"
  for fault, path, mode in (
      (UserError, tmp_path / "journal.sqlite", "replay"),
      (UserError, tmp_path / "no" / "folder.sqlite", "record"),
      (TimeoutError, tmp_path / "journal.sqlite", "record")):
    with pytest.raises(fault) as caught:
      await ask(path, mode, seed=1)
    assert not traces_of_key("".join(traceback.format_exception(caught.value)))
  assert endpoint.hits == 2 and not traces_of_key(debug.text)


@pytest.mark.parametrize("key", [f"{CANARY}\n", f"{CANARY}\r\nX: y", f"{CANARY} ", f"é{CANARY}"])
def test_a_key_that_no_header_may_carry_is_refused_without_showing_it(monkeypatch, key):
  monkeypatch.setenv("SOLVER_KEY", key)
  with pytest.raises(UserError, match="SOLVER_KEY") as caught:
    client_of(spec(DEAD, api_key_env="SOLVER_KEY"))
  assert not traces_of_key("".join(traceback.format_exception(caught.value)))


@pytest.mark.parametrize("base_url", [
    "https://user:{}@host/v1", "https://{}@host/v1", "https://:{}@host/v1",
    "https://host/v1?key={}", "https://host/v1#{}", "user:{}@host/v1", "{}@host",
    "https://user:{}@host:99999/v1", "https://user:{}@/v1", "//user:{}@host/v1"])
@pytest.mark.parametrize("key", [CANARY, CANARY.replace("/", "")])
def test_an_address_that_holds_a_secret_is_refused_without_showing_it(base_url, key):
  with pytest.raises(UserError, match="worker 'solver': base_url holds a name, a pass") as caught:
    client_of(spec(base_url.format(key)))
  assert not traces_of_key("".join(traceback.format_exception(caught.value)))


async def test_a_missing_key_is_named_before_any_call(monkeypatch):
  monkeypatch.delenv("SOLVER_KEY", raising=False)
  with pytest.raises(UserError, match="SOLVER_KEY"):
    client_of(spec(DEAD, api_key_env="SOLVER_KEY"))


def test_a_key_in_place_of_the_name_of_its_variable_is_not_shown():
  with pytest.raises(UserError, match="api_key_env must be the name of an") as caught:
    Pool((spec(DEAD, api_key_env=CANARY),))
  assert not traces_of_key("".join(traceback.format_exception(caught.value)))


async def test_a_placeholder_key_does_not_change_answers_and_is_hidden_in_errors(
    endpoint, monkeypatch):
  monkeypatch.setenv("SOLVER_KEY", "EMPTY")
  endpoint.script = [reply(completion("The set is EMPTY.")), reply(b"no such key: EMPTY", 401)]
  record = await call(endpoint, api_key_env="SOLVER_KEY")
  assert record.response == "The set is EMPTY."
  record = await call(endpoint, api_key_env="SOLVER_KEY")
  assert record.error.endswith("no such key: [key]")


async def test_no_environment_and_no_cookie_reaches_the_endpoint(endpoint, monkeypatch):
  monkeypatch.setenv("SOLVER_KEY", CANARY)

  async def set_cookie(request):
    response = web.json_response(completion())
    response.set_cookie("session", "1")
    return response

  endpoint.script = [set_cookie]
  async with client_of(spec(endpoint.base_url), spec(
      endpoint.base_url, name="keyed", api_key_env="SOLVER_KEY")) as client:
    for worker in (0, 1, 0):
      await client.call(worker, MESSAGES)
  assert [headers.get("Authorization") for headers in endpoint.headers] == [
      None, f"Bearer {CANARY}", None]
  assert all("Cookie" not in headers for headers in endpoint.headers)
