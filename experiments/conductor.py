"""The configured sampler, and the conductor that writes plans with it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from conductor_jax.models.lora import split_adapters
from conductor_jax.models.peft import merge_lora
from conductor_jax.rewards import RewardValues
from conductor_jax.rollouts import Conductor
from conductor_jax.sampling.cpu_share import cpu_share
from conductor_jax.sampling.jax_sampler import JaxSampler
from conductor_jax.sampling.probe import make_probe
from conductor_jax.sampling.sampler import Sampler
from conductor_jax.sampling.vllm_sampler import VllmSampler
from conductor_jax.sampling.vllm_server import VllmServer
from conductor_jax.sampling.weight_folder import WeightFolder
from conductor_jax.tasks.graders import Graders
from conductor_jax.training.sharding import placement
from experiments.policy import Policy
from experiments.run import Run

# Tokens of a prompt that the probe of servers begins with.
_PROBE_CONTEXT = 32


@contextlib.contextmanager
def open_sampler(run: Run, policy: Policy) -> Iterator[Sampler]:
  """A sampler of the policy's plans, without weights yet.

  Raises:
    UserError: there is no room for the weights that are handed to servers.
  """
  config = run.config
  rollout, eos = config.rollout, run.chat.tokenizer.eos_token_id
  if rollout.sampler == "vllm":
    with run.portal.wrap_async_context_manager(_vllm_sampler(run, policy)) as sampler:
      yield sampler
    return
  yield JaxSampler(
      policy.graph, max_tokens=rollout.max_completion_tokens, max_prompt=rollout.max_prompt_tokens,
      eos=eos, rows=config.grpo.prompts, copies=rollout.max_staleness > 0)


def _vllm_sampler(run: Run, policy: Policy) -> VllmSampler:
  config, options, say = run.config, run.config.rollout.vllm, run.terminal.print
  tokenizer = run.chat.tokenizer
  # What the policy is to write, after what it reads last, is what its updates change most.
  task = run.splits.train[0]
  tokens = [*run.chat.prompt(task)[-_PROBE_CONTEXT:],
            *run.chat.example_tokens(task, np.random.default_rng(config.seed)).tolist()]
  weights = WeightFolder(
      Path(options.weights_folder), policy.shape, options.dtype, tokenizer=tokenizer,
      probe=make_probe(
          policy.shape, tokens, options.dtype, placement(policy.mesh)))
  arguments = (*options.arguments, *["--enable-sleep-mode"] * options.share_device)
  servers = [] if options.urls else [VllmServer(
      Path(options.python), dtype=options.dtype, arguments=arguments, port=options.port,
      max_model_len=config.rollout.max_prompt_tokens + config.rollout.max_completion_tokens,
      environment=cpu_share(1, 2) if config.pool.source == "vllm" else {},
      log=run.workdir / "vllm.log", start_timeout=options.start_timeout,
      remove=[weights.folder], say=say)]

  def merge(params):
    adapters, base = split_adapters(params)
    return merge_lora(base, adapters, config.model.lora_alpha)

  return VllmSampler(
      weights, servers=servers, urls=options.urls,
      max_tokens=config.rollout.max_completion_tokens, eos=tokenizer.eos_token_id,
      request_timeout=options.request_timeout, sync_timeout=options.sync_timeout, say=say,
      merge=merge if config.model.lora_rank else None, share_device=options.share_device)


def make_conductor(run: Run, sampler: Sampler, graders: Graders) -> Conductor:
  """The conductor of a run, with all workers of its pool on offer."""
  config = run.config
  return Conductor(
      sampler=sampler, tokenizer=run.chat.tokenizer, executor=run.executor, graders=graders,
      reward_values=RewardValues(**config.reward), max_steps=config.workflow.max_steps,
      access=config.workflow.access, temperature=config.rollout.temperature)
