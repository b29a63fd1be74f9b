"""The protocol, spoken with a real child process over real sockets."""

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest

from conductor_jax.arena.server_process import ServerProcess


@pytest.fixture(scope="module")
def echo(factories):
  with ServerProcess("server_test_factories:echo", {"prefix": "heard"}) as server:
    yield server


@pytest.fixture(scope="module")
def mixed(factories, tmp_path_factory):
  log = tmp_path_factory.mktemp("log") / "server.log"
  with ServerProcess("server_test_factories:mixed", {}, log=log) as server:
    server.log_path = log
    yield server


def chat(text="hello there", **rest):
  return {"model": "echo", "messages": [{"role": "user", "content": text}], **rest}


async def post(server, body):
  data = body if isinstance(body, bytes) else json.dumps(body).encode()
  async with aiohttp.ClientSession() as session, session.post(
      f"{server.base_url}/chat/completions", data=data) as response:
    return response.status, await response.json()


async def get(url):
  async with aiohttp.ClientSession() as session, session.get(url) as response:
    return response.status, await response.json()


async def test_an_answer_has_the_shape_of_a_chat_completion(echo):
  status, body = await post(echo, chat(seed=5))
  assert status == 200
  assert body["object"] == "chat.completion"
  assert body["model"] == "echo"
  assert body["choices"] == [{
      "index": 0, "finish_reason": "stop",
      "message": {"role": "assistant", "content": "heard 5 hello there"}}]
  assert body["usage"] == {"prompt_tokens": 2, "completion_tokens": 4, "total_tokens": 6}
  assert isinstance(body["created"], int)


async def test_the_prompt_tokens_are_the_words_of_all_messages(echo):
  messages = [{"role": "user", "content": "a b\n c"}, {"role": "assistant", "content": ""},
              {"role": "user", "content": "d"}]
  _, body = await post(echo, {"model": "echo", "messages": messages})
  assert body["usage"]["prompt_tokens"] == 4


async def test_a_missing_seed_is_0(echo):
  _, body = await post(echo, chat("x"))
  assert body["choices"][0]["message"]["content"] == "heard 0 x"


async def test_ids_differ(echo):
  bodies = await asyncio.gather(*(post(echo, chat()) for _ in range(20)))
  assert len({body["id"] for _, body in bodies}) == 20


@pytest.mark.parametrize("key", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize(
    "limit, content, reason, tokens",
    [(1, "one", "length", 1), (3, "one  two\nthree", "length", 3),
     (4, "one  two\nthree four", "stop", 4)])
async def test_the_token_limit_cuts_after_so_many_words(mixed, key, limit, content, reason, tokens):
  _, body = await post(mixed, chat(model="long", **{key: limit}))
  assert body["choices"][0]["message"]["content"] == content
  assert body["choices"][0]["finish_reason"] == reason
  assert body["usage"]["completion_tokens"] == tokens


async def test_non_ascii_text_survives(echo):
  _, body = await post(echo, chat("½ naïve 😀 \ud800"))
  assert body["choices"][0]["message"]["content"] == "heard 0 ½ naïve 😀 \ud800"


@pytest.mark.parametrize("body, part", [
    (b"not json", "not JSON"),
    (b"\xff", "not JSON"),
    (b"[" * 100_000, "not JSON"),
    ([], "JSON object"),
    (chat(stream=True), "stream"),
    (chat(n=2), "n must be 1"),
    (chat(model=3), "model"),
    (chat(messages=[]), "messages"),
    (chat(messages="hello"), "messages"),
    (chat(messages=[{"role": "user"}]), "messages[0]"),
    (chat(messages=[{"role": "user", "content": "a"}, 4]), "messages[1]"),
    (chat(seed="7"), "seed"),
    (chat(seed=True), "seed"),
    (chat(max_tokens=0), "max_tokens"),
    (chat(max_tokens=1.5), "max_tokens"),
])
async def test_a_malformed_request_is_a_400_that_says_what_is_wrong(echo, body, part):
  status, answer = await post(echo, body)
  assert status == 400
  assert part in answer["error"]["message"]
  assert answer["error"]["type"] == "invalid_request_error"


async def test_an_unknown_model_is_a_404(echo):
  status, body = await post(echo, chat(model="gpt-9"))
  assert status == 404
  assert body["error"]["code"] == "model_not_found"
  assert "gpt-9" in body["error"]["message"]


async def test_a_body_beyond_16_mib_is_a_413(echo):
  status, _ = await post(echo, b"x" * (16 * 2**20 + 1))
  assert status == 413


async def test_other_paths_and_methods_are_refused(echo):
  assert (await get(echo.base_url + "/nothing"))[0] == 404
  assert (await get(echo.base_url + "/chat/completions"))[0] == 405


async def test_models_are_listed_and_health_is_ok(mixed):
  status, body = await get(mixed.base_url + "/models")
  assert status == 200
  assert [model["id"] for model in body["data"]] == ["modules", "long", "fail"]
  assert await get(f"http://127.0.0.1:{mixed.port}/health") == (200, {"status": "ok"})


async def test_a_failing_answerer_is_a_500_with_its_traceback_in_the_log(mixed):
  status, body = await post(mixed, chat(model="fail"))
  assert status == 500
  assert "RuntimeError: out of order" in body["error"]["message"]
  assert "Traceback" in mixed.log_path.read_text()
  assert (await post(mixed, chat(model="long")))[0] == 200


async def test_the_child_does_not_import_jax(mixed):
  _, body = await post(mixed, chat(model="modules"))
  modules = body["choices"][0]["message"]["content"].split()
  assert "aiohttp" in modules
  assert not {"jax", "jaxlib", "numpy"} & set(modules)


async def test_512_calls_at_once_are_all_answered(echo):
  connector = aiohttp.TCPConnector(limit=0)
  async with aiohttp.ClientSession(connector=connector) as session:

    async def call(seed):
      async with session.post(f"{echo.base_url}/chat/completions",
                              json=chat("x", seed=seed)) as response:
        return (await response.json())["choices"][0]["message"]["content"]

    answers = await asyncio.gather(*(call(seed) for seed in range(512)))
  assert answers == [f"heard {seed} x" for seed in range(512)]


async def test_the_server_listens_on_the_loopback_interface_only(echo):
  listening = Path("/proc/net/tcp").read_text().splitlines()[1:]
  addresses = [line.split()[1] for line in listening if line.split()[3] == "0A"]
  assert [a.partition(":")[0] for a in addresses if int(a.partition(":")[2], 16) == echo.port] == [
      "0100007F"]
