"""SmolLM2 sampled by the real vLLM, in bfloat16, while it is given new weights."""

import functools
import urllib.request

import jax
import numpy as np
import psutil
import pytest
from anyio.from_thread import start_blocking_portal
from flax import nnx

from conductor_jax.models.gguf import gguf_config, load_gguf, read_gguf
from conductor_jax.models.padding import pad_right
from conductor_jax.models.qwen2 import Qwen2
from conductor_jax.models.shapes import abstract_parameters
from conductor_jax.models.tokenizer import gguf_tokenizer
from conductor_jax.sampling.probe import make_probe
from conductor_jax.sampling.vllm_sampler import VllmSampler
from conductor_jax.sampling.vllm_server import VllmServer
from conductor_jax.sampling.weight_folder import WeightFolder
from conductor_jax.training.sharding import make_mesh, parameter_shardings
from tests.sampling.processes import wait_until

pytestmark = pytest.mark.vllm

TEXT = ("A conductor writes a plan for the workers at hand: who does what, and who sees what. Each "
        "step asks one worker, and shows it the answers of earlier steps that it needs. The last "
        "answer counts. Write such a plan for this question: which of two trains is there first? ")
# On a CPU, blocks of the cache have 128 tokens.
REPEATS = 5
MAX_TOKENS = 96
# What bfloat16 makes of log-probabilities on average is a little more than half of it.
ROUNDING = 0.07
SEEDS = np.arange(8, dtype=np.uint32)


class Rig:
  """The sampler on an event loop in another thread, as a trainer has it."""

  def __init__(self, portal, sampler, server, config, base, prompt):
    self.portal, self.sampler, self.server = portal, sampler, server
    self.config, self.base, self.prompt = config, base, prompt
    graph, _ = nnx.split(nnx.eval_shape(
        lambda: Qwen2(config, compute_dtype="float32", remat="none", rngs=nnx.Rngs(0))))

    @jax.jit
    def logprobs(params, tokens):
      # As the files have them.
      params = jax.tree.map(lambda x: jax.lax.reduce_precision(x, 8, 7), params)
      model = nnx.merge(graph, params)
      hidden = model.hidden_states(tokens[:, :1], np.ones((1, 1), bool), tokens[:, None, 1:])
      return jax.nn.log_softmax(hidden[0, 0] @ model.output_head())

    self._logprobs = logprobs
    # Two versions at a time are enough.
    self.params = functools.lru_cache(2)(self._params)

  def _params(self, version):
    """Version 0 is SmolLM2; in others each number is off by 8 %, which changes what it writes."""
    generator = np.random.default_rng(version)
    noise = 0.08 * (version > 0)
    return jax.tree.map(
        lambda x: x * (1 + noise * generator.normal(size=x.shape).astype(np.float32)), self.base)

  def load(self, version):
    self.sampler.stage(self.params(version), version)
    self.portal.call(self.sampler.load)

  def sample(self, seeds=SEEDS, temperature=1.0):
    return self.portal.start_task_soon(self.sampler.sample, self.prompt, seeds, temperature)

  def tokens_written(self):
    """How many the server has written since its start."""
    with urllib.request.urlopen(self.server.url + "/metrics") as response:
      lines = response.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines
               if line.startswith("vllm:generation_tokens_total"))

  def differences(self, completion, version):
    """float32[tokens], between the sampler's and the trainer's log-probabilities."""
    whole = [*self.prompt, *completion.tokens.tolist()]
    tokens, _ = pad_right([whole], len(self.prompt) + MAX_TOKENS, 0)
    rows = np.arange(len(self.prompt) - 1, len(whole) - 1)
    trainer = np.asarray(self._logprobs(self.params(version), tokens))[rows, completion.tokens]
    return np.abs(completion.logprobs - trainer)


@pytest.fixture(scope="module")
def rig(vllm_python, smollm2_file, tmp_path_factory):
  file = read_gguf(smollm2_file)
  config, tokenizer = gguf_config(file), gguf_tokenizer(file)
  base = load_gguf(
      file, config, parameter_shardings(make_mesh(1, 1, 1), abstract_parameters(config)), "float32")
  root = tmp_path_factory.mktemp("weights")
  prompt = tokenizer(REPEATS * TEXT).input_ids
  folder = WeightFolder(
      root, config, "bfloat16", tokenizer=tokenizer, probe=make_probe(config, prompt, "bfloat16"))
  server = VllmServer(
      vllm_python, max_model_len=512, dtype="bfloat16", arguments=["--enforce-eager"],
      log=root / "vllm.log", start_timeout=300.0, remove=[folder.folder], say=print)
  sampler = VllmSampler(
      folder, servers=[server], max_tokens=MAX_TOKENS, eos=tokenizer.eos_token_id,
      request_timeout=300.0, sync_timeout=120.0, say=print)
  with start_blocking_portal() as portal, portal.wrap_async_context_manager(sampler):
    rig = Rig(portal, sampler, server, config, base, prompt)
    rig.load(0)
    yield rig
  assert not folder.folder.exists()


def test_log_probabilities_are_the_trainers_and_a_seed_fixes_its_completion(rig):
  rig.load(0)
  completions = rig.sample().result()
  # Alone and from the cache, for rounding depends on the batch.
  [one], [again] = (rig.sample(SEEDS[:1]).result() for _ in range(2))
  np.testing.assert_array_equal(again.tokens, one.tokens)
  np.testing.assert_array_equal(again.logprobs, one.logprobs)
  assert len({tuple(c.tokens.tolist()) for c in completions}) == len(SEEDS)
  for completion in completions:
    assert set(completion.weight_versions.tolist()) == {0}
    assert rig.differences(completion, 0).mean() < ROUNDING


def test_frozen_completions_go_on_with_keys_and_values_of_the_new_weights(rig):
  rig.load(0)
  rig.sampler.stage(rig.params(1), 1)
  before = rig.tokens_written()
  sampling = rig.sample()
  wait_until(lambda: rig.tokens_written() > before + 5 * len(SEEDS), "each has some tokens")
  rig.portal.call(rig.sampler.load)
  spanning = [completion for completion in sampling.result()
              if set(completion.weight_versions.tolist()) == {0, 1}]
  assert len(spanning) >= 4
  under_old, under_new, new = [], [], []
  for completion in spanning:
    assert np.all(np.diff(completion.weight_versions) >= 0)
    under_old.extend(rig.differences(completion, 0))
    under_new.extend(rig.differences(completion, 1))
    new.extend(completion.weight_versions == 1)
  under_old, under_new, new = map(np.array, (under_old, under_new, new))
  assert under_old[~new].mean() < ROUNDING < 0.4 < under_old[new].mean()
  assert under_new[new].mean() < ROUNDING


def test_the_prefix_cache_does_not_outlive_the_weights_that_filled_it(rig):
  for version in (2, 3):
    rig.load(version)
    for _ in range(2):  # the second time from the cache
      [completion] = rig.sample(SEEDS[:1], 0.0).result()
      assert set(completion.weight_versions.tolist()) == {version}
      assert rig.differences(completion, version).mean() < ROUNDING


def test_a_server_that_was_given_weights_is_bit_for_bit_one_that_was_started_with_them(rig):
  # Its head too, which is the embedding. Of one completion, for rounding depends on the batch.
  rig.load(4)
  reloaded = rig.sample(SEEDS[:1], 0.0).result()
  [process] = [process for process in psutil.Process().children(recursive=True)
               if "EngineCore" in process.name()]
  process.kill()
  restarted = rig.sample(SEEDS[:1], 0.0).result()
  assert not process.is_running()
  for one, other in zip(reloaded, restarted, strict=True):
    assert one.tokens.tolist() == other.tokens.tolist()
    np.testing.assert_array_equal(one.logprobs, other.logprobs)
