"""The configured sampler, and the conductor that writes plans with it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from conductor_jax.models.lora import split_adapters
from conductor_jax.models.peft import merge_lora
from conductor_jax.rewards import RewardValues
from conductor_jax.rollouts import Conductor, Recursion
from conductor_jax.sampling.cpu_share import cpu_share
from conductor_jax.sampling.jax_sampler import JaxSampler
from conductor_jax.sampling.probe import make_probe
from conductor_jax.sampling.sampler import Sampler
from conductor_jax.sampling.vllm_sampler import VllmSampler
from conductor_jax.sampling.vllm_server import VllmServer
from conductor_jax.sampling.weight_folder import WeightFolder
from conductor_jax.strategies.conductor import ConductorStrategy
from conductor_jax.tasks.graders import Graders
from conductor_jax.training.sharding import placement
from experiments.policy import Policy
from experiments.run import Run


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
  max_model_len = config.rollout.max_prompt_tokens + config.rollout.max_completion_tokens
  # What the policy is to write, after what it reads.
  task = run.splits.train[0]
  prompt = run.chat.prompt(task)
  tokens = [*prompt, *run.chat.example_tokens(task, np.random.default_rng(config.seed)).tolist()]
  weights = WeightFolder(
      Path(options.weights_folder), policy.shape, options.dtype, tokenizer=tokenizer,
      probe=make_probe(
          # The server writes a token after them.
          policy.shape, tokens[:max_model_len - 1], options.dtype, placement(policy.mesh),
          context=len(prompt)))
  arguments = (*options.arguments, *["--enable-sleep-mode"] * options.share_device)
  servers = [] if options.urls else [VllmServer(
      Path(options.python), dtype=options.dtype, arguments=arguments, port=options.port,
      max_model_len=max_model_len,
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


def make_conductor(
    run: Run, sampler: Sampler, graders: Graders, *, empty_access: bool = False) -> Conductor:
  """The conductor of a run; `empty_access` as there."""
  config, recursion = run.config, run.config.grpo.recursion
  return Conductor(
      sampler=sampler, tokenizer=run.chat.tokenizer, template=run.chat.template,
      executor=run.executor, graders=graders, reward_values=RewardValues(**config.reward),
      temperature=config.rollout.temperature, max_prompt=config.rollout.max_prompt_tokens,
      recursion=Recursion(recursion.discount, recursion.first_reward), empty_access=empty_access)


def conductor_strategy(
    run: Run, conductor: Conductor, *, name: str = "conductor", variant: str = ""
) -> ConductorStrategy:
  """The conductor as it answers held-out questions; `variant` says which policy it is."""
  config = run.config
  return ConductorStrategy(
      conductor, run.offers.heldout, temperature=config.evaluation.temperature,
      max_rounds=config.workflow.max_rounds,
      max_dollars=config.workflow.max_dollars, name=name, variant=variant)
