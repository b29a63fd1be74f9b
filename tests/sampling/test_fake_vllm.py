"""The stand-in server itself: what the other tests rely on is true of it."""

import json
import threading
import urllib.error
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

GENERATE = "/inference/v1/generate"
GOLDENS = Path(__file__).parent.parent / "models" / "goldens"


def generate(server, tokens, **params):
  return server.ask(GENERATE, {"token_ids": tokens, "sampling_params": params})


def post(server, route):
  return server.ask(route, method="POST")


def reload(server, folder):
  return server.ask("/collective_rpc", {
      "method": "reload_weights", "kwargs": {"weights_path": str(folder)}})


def prompt_logprobs(server, tokens):
  answer = generate(server, tokens, max_tokens=1, prompt_logprobs=0, temperature=0.5)
  assert answer["prompt_logprobs"][0] is None
  return [entry[str(token)]["logprob"]
          for token, entry in zip(tokens[1:], answer["prompt_logprobs"][1:], strict=True)]


@pytest.fixture(scope="module")
def other_folder(tiny_folder, tmp_path_factory):
  """The tiny model with other weights."""
  folder = tmp_path_factory.mktemp("other")
  (folder / "config.json").write_text((tiny_folder / "config.json").read_text())
  weights = load_file(tiny_folder / "model.safetensors")
  save_file({name: 0.5 * array for name, array in weights.items()}, folder / "model.safetensors")
  return folder


@pytest.mark.parametrize("name", ["tied", "untied"])
def test_log_probabilities_of_a_prompt_are_those_of_transformers(start_fake_vllm, name):
  server = start_fake_vllm(model=GOLDENS / f"qwen2-{name}")
  golden = np.load(GOLDENS / "qwen2.npz")
  for row, sample in np.ndindex(golden["completion_tokens"].shape[:2]):
    mask = golden["completion_mask"][row, sample]
    prompt = golden["prompt_tokens"][row][golden["prompt_mask"][row]].tolist()
    completion = golden["completion_tokens"][row, sample][mask].tolist()
    if not completion:
      continue
    logits = golden[f"logits_{name}"][row, sample][mask]
    expected = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    got = prompt_logprobs(server, prompt + completion)[len(prompt) - 1:]
    np.testing.assert_allclose(
        got, expected[np.arange(len(completion)), completion], rtol=0, atol=1e-5)


def test_sampled_log_probabilities_are_of_the_sampling_temperature(fake_vllm):
  prompt = [1, 5, 9]
  [choice] = generate(
      fake_vllm, prompt, seed=3, temperature=0.5, max_tokens=4, logprobs=61)["choices"]
  first = choice["logprobs"]["content"][0]
  scaled = {top["token_id"]: top["logprob"] for top in first["top_logprobs"]}
  plain = {token: prompt_logprobs(fake_vllm, [*prompt, token])[-1] for token in scaled}
  total = np.log(sum(np.exp(2 * value) for value in plain.values()))
  for token, value in scaled.items():
    assert value == pytest.approx(2 * plain[token] - total, abs=1e-4)
  assert first["top_logprobs"][0]["token_id"] == first["token_id"] == choice["token_ids"][0]


def test_sampled_tokens_follow_their_probabilities(fake_vllm):
  choices = generate(fake_vllm, [1, 5, 9], seed=0, max_tokens=1, n=500, logprobs=61)["choices"]
  expected, counts = np.zeros(61), np.zeros(61)
  for top in choices[0]["logprobs"]["content"][0]["top_logprobs"]:
    expected[top["token_id"]] = 500 * np.exp(top["logprob"])
  for choice in choices:
    counts[choice["token_ids"][0]] += 1
  rare = expected < 5
  expected = np.append(expected[~rare], expected[rare].sum())
  counts = np.append(counts[~rare], counts[rare].sum())
  # Chi-squared: so far beyond its mean once in 10,000 seeds.
  freedom = len(counts) - 1
  assert np.sum((counts - expected) ** 2 / expected) < freedom + 4 * np.sqrt(2 * freedom)


def test_a_seed_fixes_its_completion_and_the_next_one_is_of_the_next_seed(fake_vllm):
  both = generate(fake_vllm, [1, 5, 9], seed=7, n=2, max_tokens=6, ignore_eos=True)["choices"]
  for index in range(2):
    [alone] = generate(fake_vllm, [1, 5, 9], seed=7 + index, max_tokens=6, ignore_eos=True)[
        "choices"]
    assert alone["token_ids"] == both[index]["token_ids"]
  assert both[0]["token_ids"] != both[1]["token_ids"]


def test_completions_answers_as_generate_does(fake_vllm):
  params = {"seed": 7, "n": 2, "max_tokens": 4, "temperature": 0.7, "logprobs": 0}
  choices = generate(fake_vllm, [1, 5, 9], **params)["choices"]
  answer = fake_vllm.ask("/v1/completions", {
      "model": "conductor", "prompt": [1, 5, 9], "return_token_ids": True, **params})
  for choice, completion in zip(choices, answer["choices"], strict=True):
    assert completion["token_ids"] == choice["token_ids"]
    assert completion["logprobs"]["token_logprobs"] == [
        entry["logprob"] for entry in choice["logprobs"]["content"]]
    assert completion["finish_reason"] == choice["finish_reason"]


def test_a_completion_stops_after_its_end_token_or_at_its_limit(fake_vllm):
  choices = generate(fake_vllm, [1, 5], seed=0, n=64, max_tokens=12)["choices"]
  for choice in choices:
    stopped = choice["finish_reason"] == "stop"
    assert stopped == (choice["token_ids"][-1] == 2)
    assert 2 not in choice["token_ids"][:-1]
    assert stopped or len(choice["token_ids"]) == 12
  assert {choice["finish_reason"] for choice in choices} == {"stop", "length"}


def test_old_keys_and_values_are_used_until_the_prefix_cache_is_reset(
    fake_vllm, start_fake_vllm, other_folder):
  prompt = list(range(3, 16))
  params = {"temperature": 0, "max_tokens": 1, "logprobs": 0}

  def first(server):
    [choice] = generate(server, prompt, **params)["choices"]
    return choice["logprobs"]["content"][0]["logprob"]

  old, true = first(fake_vllm), first(start_fake_vllm(model=other_folder))
  assert reload(fake_vllm, other_folder) == {"results": [None]}
  mixed = first(fake_vllm)
  assert abs(mixed - true) > 1e-3
  assert abs(mixed - old) > 1e-3
  assert post(fake_vllm, "/reset_prefix_cache") == {"success": True}
  assert first(fake_vllm) == pytest.approx(true, abs=1e-6)


def test_frozen_requests_go_on_with_the_new_weights(start_fake_vllm, other_folder):
  server = start_fake_vllm(FAKE_VLLM_TOKEN_SECONDS="0.02")
  answers = []
  asked = threading.Thread(target=lambda: answers.append(generate(
      server, [1, 5, 9], seed=1, max_tokens=40, ignore_eos=True, logprobs=0)))
  asked.start()
  while not server.requests(GENERATE):
    pass
  assert post(server, "/pause?mode=keep") == {"status": "paused"}
  assert server.ask("/is_paused") == {"is_paused": True}
  # Blocks are held by the frozen request.
  held = post(server, "/reset_prefix_cache")["success"]
  reload(server, other_folder)
  assert post(server, "/reset_prefix_cache?reset_running_requests=true") == {"success": True}
  server.ask("/update_weight_version", {"new_version": "step-1"})
  assert not answers
  assert post(server, "/resume") == {"status": "resumed"}
  asked.join(timeout=20)
  [choice] = answers[0]["choices"]
  *old, new = choice["weight_versions"]
  assert new == {"version": "step-1", "start": new["start"], "end": 40}
  assert old == ([{"version": "default", "start": 0, "end": new["start"]}] if old else [])
  assert held == (not old)
  # The tokens after the pause have the log-probabilities of the new weights alone.
  whole = [1, 5, 9, *choice["token_ids"]]
  np.testing.assert_allclose(
      [entry["logprob"] for entry in choice["logprobs"]["content"]][new["start"]:],
      prompt_logprobs(server, whole)[2 + new["start"]:], rtol=0, atol=1e-5)


def test_weights_are_lost_in_deep_sleep_and_come_back_by_a_reload(start_fake_vllm, tiny_folder):
  server = start_fake_vllm("--enable-sleep-mode")
  before = prompt_logprobs(server, [1, 5, 9])
  assert post(server, "/sleep?level=2") == {"status": "sleeping", "level": 2}
  with pytest.raises(urllib.error.HTTPError, match="500"):
    reload(server, tiny_folder)
  assert post(server, "/wake_up?tags=weights") == {"status": "sleeping", "tags": ["weights"]}
  reload(server, tiny_folder)
  assert post(server, "/wake_up?tags=kv_cache") == {"status": "awake", "tags": ["kv_cache"]}
  assert server.ask("/is_sleeping") == {"is_sleeping": False}
  assert prompt_logprobs(server, [1, 5, 9]) == before


def test_a_refused_request_says_why(fake_vllm):
  for body, status, message in (
      ({"token_ids": [1], "model": "other"}, 404, "The model `other` does not exist."),
      ({"token_ids": [61]}, 400, "Token id 61 is out of vocabulary"),
      ({"token_ids": [1] * 65}, 400, "is longer than the maximum model length of 64")):
    with pytest.raises(urllib.error.HTTPError) as error:
      fake_vllm.ask(GENERATE, {"sampling_params": {"max_tokens": 1}, **body})
    fault = json.load(error.value)["error"]
    assert fault["code"] == error.value.code == status
    assert message in fault["message"]


def test_a_fault_strikes_as_often_and_as_late_as_it_is_armed(fake_vllm):
  fake_vllm.arm("/is_paused", "status", status=503, times=2, after=1)
  codes = []
  for _ in range(4):
    try:
      fake_vllm.ask("/is_paused")
      codes.append(200)
    except urllib.error.HTTPError as error:
      codes.append(error.code)
  assert codes == [200, 503, 503, 200]
  assert len(fake_vllm.requests("/is_paused")) == 4


def test_a_server_that_is_armed_to_die_is_gone(fake_vllm):
  fake_vllm.arm("/pause", "die")
  with pytest.raises(OSError):
    post(fake_vllm, "/pause")
  assert fake_vllm.process.wait(timeout=20) == 1
