"""A stand-in for vLLM's OpenAI server: its command line, routes and JSON, on a tiny model.

    PYTHONPATH=tests/sampling/fake_vllm python -m vllm.entrypoints.openai.api_server --model DIR

Made after vllm 0.32. It computes what it answers, with numpy, so that log-probabilities are true;
faults are armed over HTTP (`vllm.faults`). Faults at the start and slowness come from the
environment:

    FAKE_VLLM_START=hang,die,ignore_sigterm,grandchild   any of them
    FAKE_VLLM_TOKEN_SECONDS=0.1                          how long a token takes
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

from aiohttp import web
from vllm.engine import Engine, RequestError
from vllm.faults import Faults


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
  parser = argparse.ArgumentParser("api_server.py", allow_abbrev=False)
  parser.add_argument("--model", type=Path, required=True)
  parser.add_argument("--served-model-name")
  parser.add_argument("--host", default="0.0.0.0")
  parser.add_argument("--port", type=int, default=8000)
  parser.add_argument("--max-model-len", type=int)
  parser.add_argument("--logprobs-mode", default="raw_logprobs")
  parser.add_argument("--enable-scale-out", action="store_true")
  parser.add_argument("--enable-sleep-mode", action="store_true")
  # The real one refuses flags that it does not know; here most are not known.
  return parser.parse_known_args(arguments)[0]


class Server:
  """The routes."""

  def __init__(self, arguments: argparse.Namespace):
    self.arguments = arguments
    self.name = arguments.served_model_name or str(arguments.model)
    self.faults = Faults()
    self.engine = Engine(
        arguments.model, arguments.max_model_len or 64, arguments.logprobs_mode,
        float(os.environ.get("FAKE_VLLM_TOKEN_SECONDS", "0")))

  def application(self) -> web.Application:
    application = web.Application(middlewares=[self.faults.middleware, errors])
    application.add_routes([
        *self.faults.routes(),
        web.get("/health", self.health),
        web.get("/v1/models", self.models),
        web.post("/v1/completions", self.completions),
        web.post("/v1/chat/completions", self.chat_completions),
        web.post("/inference/v1/generate", self.generate),
    ])
    if os.environ.get("VLLM_SERVER_DEV_MODE") == "1":
      application.add_routes([
          web.post("/pause", self.pause), web.post("/resume", self.resume),
          web.get("/is_paused", self.is_paused),
          web.post("/collective_rpc", self.collective_rpc),
          web.post("/reset_prefix_cache", self.reset_prefix_cache),
          web.post("/update_weight_version", self.update_weight_version),
          web.get("/weight_info", self.weight_info),
          web.post("/sleep", self.sleep), web.post("/wake_up", self.wake_up),
          web.get("/is_sleeping", self.is_sleeping),
      ])
    return application

  async def health(self, request):
    return web.Response()

  async def models(self, request):
    return web.json_response({"object": "list", "data": [{
        "id": self.name, "object": "model", "created": int(time.time()), "owned_by": "vllm",
        "root": str(self.arguments.model), "parent": None,
        "max_model_len": self.engine.max_model_len, "permission": []}]})

  def check_model(self, name):
    if name not in (None, self.name):
      raise RequestError(
          f"The model `{name}` does not exist. Valid aliases: {self.name}.", 404, "NotFoundError",
          "model")

  async def generate(self, request):
    if not self.arguments.enable_scale_out:
      raise RequestError(
          "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable "
          "them.", 403, "PermissionDeniedError")
    body = await request.json()
    self.check_model(body.get("model"))
    prompt, params = body.get("token_ids"), body.get("sampling_params")
    if not prompt or params is None:
      name = "body.token_ids" if not prompt else "body.sampling_params"
      raise RequestError(f"1 validation error:\n  '{name}'", 400, "Bad Request", name)
    sequences = await self.engine.generate(prompt, params)
    identity = body.get("request_id") or uuid.uuid4().hex[:16]
    return web.json_response({
        "request_id": f"generate-tokens-{identity}", "model": self.name,
        "created": int(time.time()), "usage": usage(len(prompt), sequences),
        "prompt_logprobs": sequences[0].prompt_logprobs, "prompt_token_id_logprobs": None,
        "prompt_token_ids": prompt if body.get("return_token_ids") else None,
        "mm_placeholders": None, "metrics": None, "kv_transfer_params": None,
        "ec_transfer_params": None, "output_mode": "tokens",
        "choices": [{
            "index": index, "finish_reason": sequence.finish_reason,
            "stop_reason": sequence.stop_reason, "token_ids": sequence.tokens,
            "routed_experts": None, "sampling_mask": None, "weight_versions": spans(sequence),
            "logprobs": None if params.get("logprobs") is None else {"content": sequence.content},
        } for index, sequence in enumerate(sequences)]})

  async def completions(self, request):
    body = await request.json()
    self.check_model(body.get("model"))
    prompts = body["prompt"]
    prompts = prompts if isinstance(prompts[0], list) else [prompts]
    params = {"max_tokens": 16, **body}
    if params["max_tokens"] > self.engine.max_model_len:
      raise RequestError(
          f"max_tokens={params['max_tokens']} cannot be greater than max_model_len="
          f"{self.engine.max_model_len}. Please request fewer output tokens.", param="max_tokens")
    # The log-probabilities of a prompt go by another option here.
    params["prompt_logprobs"] = None
    groups = await asyncio.gather(*(self.engine.generate(prompt, params) for prompt in prompts))
    sequences = [sequence for group in groups for sequence in group]
    with_ids = body.get("return_token_ids")
    return web.json_response({
        "id": f"cmpl-{uuid.uuid4().hex[:16]}", "object": "text_completion",
        "created": int(time.time()), "model": self.name,
        "choices": [{
            "index": index, "text": text(sequence.tokens),
            "logprobs": None if body.get("logprobs") is None else completion_logprobs(sequence),
            "finish_reason": sequence.finish_reason, "stop_reason": sequence.stop_reason,
            "token_ids": sequence.tokens if with_ids else None, "prompt_logprobs": None,
            "prompt_token_ids": sequence.prompt if with_ids else None, "routed_experts": None,
        } for index, sequence in enumerate(sequences)],
        "service_tier": None, "system_fingerprint": "vllm-stand-in",
        "usage": usage(sum(map(len, prompts)), sequences),
        "kv_transfer_params": None, "ec_transfer_params": None, "metrics": None})

  async def chat_completions(self, request):
    body = await request.json()
    self.check_model(body.get("model"))
    # There is no tokenizer: a byte is a token, past those with a meaning.
    content = "".join(message["content"] for message in body["messages"]).encode()
    prompt = [3 + byte % (self.engine.model.vocab_size - 3) for byte in content]
    sequences = await self.engine.generate(prompt, {**body, "logprobs": None})
    return web.json_response({
        "id": f"chatcmpl-{uuid.uuid4().hex[:16]}", "object": "chat.completion",
        "created": int(time.time()), "model": self.name,
        "choices": [{
            "index": index, "logprobs": None, "finish_reason": sequence.finish_reason,
            "stop_reason": sequence.stop_reason, "token_ids": None,
            "message": {"role": "assistant", "content": text(sequence.tokens), "refusal": None,
                        "annotations": None, "audio": None, "function_call": None,
                        "tool_calls": [], "reasoning": None},
        } for index, sequence in enumerate(sequences)],
        "service_tier": None, "system_fingerprint": "vllm-stand-in",
        "usage": usage(len(prompt), sequences), "prompt_logprobs": None,
        "prompt_token_ids": None, "kv_transfer_params": None})

  async def pause(self, request):
    mode = request.query.get("mode", "abort")
    if mode not in ("abort", "wait", "keep"):
      raise RequestError(
          "1 validation error:\n  Input should be 'abort', 'wait' or 'keep'", 400, "Bad Request",
          "query.mode")
    await self.engine.pause(mode)
    return web.json_response({"status": "paused"})

  async def resume(self, request):
    self.engine.resume()
    return web.json_response({"status": "resumed"})

  async def is_paused(self, request):
    return web.json_response({"is_paused": self.engine.paused})

  async def collective_rpc(self, request):
    body = await request.json()
    try:
      if body["method"] != "reload_weights":
        raise ValueError(f"no method {body['method']}")
      if "keep_old_weights" not in request["faults"]:
        self.engine.reload(Path(body["kwargs"]["weights_path"]))
    except (OSError, ValueError) as error:
      raise RequestError(
          f"Call to collective_rpc method failed: Worker failed with error '{error}', please check "
          "the stack trace above for the root cause", 500, "InternalServerError") from error
    return web.json_response({"results": [None]})

  async def reset_prefix_cache(self, request):
    if "reset_fails" in request["faults"]:
      return web.json_response({"success": False})
    if "reset_lies" in request["faults"]:
      return web.json_response({"success": True})
    running_too = request.query.get("reset_running_requests", "false").lower() in ("true", "1")
    return web.json_response({"success": self.engine.reset_prefix_cache(running_too)})

  async def update_weight_version(self, request):
    version = (await request.json()).get("new_version")
    if not isinstance(version, str):
      raise RequestError(
          "1 validation error:\n  'body.new_version' must be a string", 400, "Bad Request",
          "body.new_version")
    self.engine.version = version
    return web.json_response({"success": True, "new_version": version})

  async def weight_info(self, request):
    wrong = "wrong_version" in request["faults"]
    return web.json_response({"weight_version": "of-another" if wrong else self.engine.version})

  async def sleep(self, request):
    level = int(request.query.get("level", "1"))
    self.engine.sleep(level if self.arguments.enable_sleep_mode else 0)
    return web.json_response({"status": "sleeping", "level": level})

  async def wake_up(self, request):
    tags = request.query.getall("tags", []) or None
    awake = self.engine.wake_up(tags)
    return web.json_response({"status": "awake" if awake else "sleeping", "tags": tags})

  async def is_sleeping(self, request):
    return web.json_response({"is_sleeping": self.engine.paused or bool(self.engine.asleep)})


@web.middleware
async def errors(request, handler):
  try:
    return await handler(request)
  except RequestError as error:
    return web.json_response(error.content, status=error.status)
  except web.HTTPException as error:
    return web.json_response({"detail": error.reason}, status=error.status)


def text(tokens):
  return "".join(f"<{token}>" for token in tokens)


def usage(prompt_tokens, sequences):
  completion_tokens = sum(len(sequence.tokens) for sequence in sequences)
  return {"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens + completion_tokens,
          "completion_tokens": completion_tokens, "prompt_tokens_details": None,
          "completion_tokens_details": None}


def completion_logprobs(sequence):
  tokens = [text([token]) for token in sequence.tokens]
  return {
      "text_offset": [sum(map(len, tokens[:i])) for i in range(len(tokens))],
      "token_logprobs": [entry["logprob"] for entry in sequence.content], "tokens": tokens,
      "top_logprobs": [
          {text([top["token_id"]]): top["logprob"] for top in entry["top_logprobs"]}
          for entry in sequence.content]}


def spans(sequence):
  """Which weights wrote which tokens."""
  found = []
  for index, version in enumerate(sequence.versions):
    if not found or found[-1]["version"] != version:
      found.append({"version": version, "start": index, "end": index})
    found[-1]["end"] = index + 1
  return found


def fail_at_start(kinds: set[str]) -> None:
  if "ignore_sigterm" in kinds:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
  if "grandchild" in kinds:
    # As the engine is for vLLM: a process of its own that does not notice when its parent is gone.
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    grandchild = subprocess.Popen([sys.executable, "-c", code])
    print(f"grandchild {grandchild.pid}", flush=True)
  if "hang" in kinds:
    print("INFO 11-29 21:04:16 [loader.py:12] Loading weights", flush=True)
    time.sleep(600)
  if "die" in kinds:
    raise RuntimeError("armed to die at the start")


def main() -> None:
  arguments = parse_arguments(sys.argv[1:])
  print(f"server {os.getpid()}", flush=True)
  fail_at_start(set(os.environ.get("FAKE_VLLM_START", "").split(",")))

  async def application():
    return Server(arguments).application()

  ignores = signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
  web.run_app(
      application(), host=arguments.host, port=arguments.port, handler_cancellation=True,
      shutdown_timeout=0.1, handle_signals=not ignores, access_log=None, print=None)


if __name__ == "__main__":
  main()
