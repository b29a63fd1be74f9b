"""What a server's answers are taken for, over a real socket."""

import json

import aiohttp
import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from conductor_jax.errors import UserError
from conductor_jax.sampling.vllm_client import ServerBusy, ServerFault, VllmClient

CHOICE = {
    "token_ids": [4, 5, 2], "finish_reason": "stop",
    "logprobs": {"content": [{"logprob": -0.5}, {"logprob": -1.5}, {"logprob": -0.25}]},
    "weight_versions": [{"version": "a", "start": 0, "end": 1},
                        {"version": "b", "start": 1, "end": 3}]}


@pytest.fixture
async def answering():
  """A function (status, body) → a client of a server that answers everything so."""
  servers, sessions = [], []

  async def make(status, body):
    async def handle(request):
      return web.Response(status=status, text=body if isinstance(body, str) else json.dumps(body))

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handle)
    servers.append(TestServer(application))
    await servers[-1].start_server()
    sessions.append(aiohttp.ClientSession())
    return VllmClient(sessions[-1], str(servers[-1].make_url("")).rstrip("/"), "conductor")

  yield make
  for each in (*sessions, *servers):
    await each.close()


async def generate(client):
  return await client.generate([7, 8], seed=1, temperature=1.0, max_tokens=3, eos=2, timeout=5)


async def test_an_answer_is_tokens_with_their_log_probabilities_and_weights(answering):
  generated = await generate(await answering(200, {"choices": [CHOICE]}))
  assert generated.tokens.tolist() == [4, 5, 2] and generated.tokens.dtype == np.int32
  assert generated.logprobs.tolist() == [-0.5, -1.5, -0.25]
  assert generated.logprobs.dtype == np.float32
  assert generated.finish_reason == "stop" and generated.versions == ("a", "b", "b")


@pytest.mark.parametrize("change, message", [
    ({"token_ids": [4, 5]}, "2 tokens, 3 log-probabilities from -1.5 and 3 weight versions"),
    ({"token_ids": [], "logprobs": {"content": []}, "weight_versions": []}, "0 tokens"),
    ({"logprobs": {"content": [{"logprob": -0.5}, {"logprob": -9999.0}, {"logprob": -1}]}},
     "from -9999"),
    ({"weight_versions": None}, "answered without .*: a server must be vLLM"),
    ({"logprobs": None}, "answered without"),
    ({"finish_reason": "abort"}, "ended a completion by 'abort'")])
async def test_an_answer_that_lacks_something_is_a_fault_of_the_server(answering, change, message):
  client = await answering(200, {"choices": [{**CHOICE, **change}]})
  with pytest.raises(ServerFault, match=message):
    await generate(client)


@pytest.mark.parametrize("status, kind", [
    (408, ServerBusy), (429, ServerBusy), (503, ServerBusy), (500, ServerFault),
    (502, ServerFault), (400, UserError), (404, UserError), (403, UserError), (307, UserError)])
async def test_a_status_tells_who_is_at_fault_in_the_servers_words(answering, status, kind):
  client = await answering(status, {"error": {"message": "so it\nis", "code": status}})
  with pytest.raises((ServerFault, UserError), match=f"answered {status}: so it is") as fault:
    await generate(client)
  assert fault.type is kind and "\n" not in str(fault.value)


@pytest.mark.parametrize("status, route, told", [
    (404, "/pause", True), (403, "/inference/v1/generate", True), (405, "/sleep", True),
    (404, "/inference/v1/generate", False), (400, "/pause", False)])
async def test_what_a_server_must_be_started_with_is_said_where_it_was_not(
    answering, status, route, told):
  client = await answering(status, {"detail": "Not Found"})
  with pytest.raises(UserError) as fault:
    await client.ask("POST", route, timeout=5)
  assert ("VLLM_SERVER_DEV_MODE=1 and --enable-scale-out" in str(fault.value)) == told


async def test_the_log_probabilities_of_a_prompt_are_those_of_its_own_tokens(answering):
  client = await answering(200, {"prompt_logprobs": [
      None, {"9": {"logprob": -1.0}, "8": {"logprob": -2.0}}, {"3": {"logprob": -0.5}}]})
  assert (await client.prompt_logprobs([7, 8, 3], 5)).tolist() == [-2.0, -0.5]
  with pytest.raises(ServerFault, match="answered without '4' in prompt_logprobs"):
    await client.prompt_logprobs([7, 8, 4], 5)


async def test_a_body_that_is_not_json_and_a_port_that_nobody_has_are_faults(answering):
  client = await answering(200, "<html>")
  with pytest.raises(ServerFault, match="answered what is not JSON: b'<html>'"):
    await generate(client)
  client.url = "http://127.0.0.1:1"
  with pytest.raises(ServerFault, match="127.0.0.1:1/inference/v1/generate cannot be asked"):
    await generate(client)
