"""The configured training steps, for a policy in arrays or in shapes."""

from functools import partial

import optax
from ml_collections import ConfigDict

from conductor_jax.training.entropy import steer_entropy
from conductor_jax.training.grpo import grpo_loss
from conductor_jax.training.logprobs import Params, batch_statistics
from conductor_jax.training.optimizer import adamw, make_schedule
from conductor_jax.training.sft import likelihood_loss
from conductor_jax.training.step import TrainState, TrainStep, abstract_state, initial_state
from experiments.policy import Policy


def _schedule(options: ConfigDict, steps: int) -> optax.Schedule:
  return make_schedule(
      learning_rate=options.learning_rate, steps=steps, warmup_fraction=options.warmup_fraction,
      decay=options.decay)


def _optimizer(
    config: ConfigDict, schedule: optax.Schedule) -> optax.GradientTransformationExtraArgs:
  options = config.optimizer
  return adamw(
      schedule, b1=options.b1, b2=options.b2, weight_decay=options.weight_decay,
      mu_dtype=options.mu_dtype)


def _statistics(config: ConfigDict, policy: Policy, temperature: float):
  return partial(batch_statistics, graph=policy.graph, temperature=temperature,
                 chunk=config.model.logprob_chunk)


def sft_step(
    config: ConfigDict, policy: Policy, *, compile_only: bool = False
) -> tuple[TrainStep, TrainState]:
  """The warm start's step, and the state it begins with, around the policy's own arrays.

  Args:
    config: the options.
    policy: where the warm start begins.
    compile_only: the policy is in shapes, and so is the state.
  """
  schedule = _schedule(config.sft, config.sft.steps)
  optimizer = _optimizer(config, schedule)
  state = (abstract_state if compile_only else initial_state)(
      policy.mesh, policy.trained, optimizer)

  def loss(statistics, batch, counts, state):
    del state
    return likelihood_loss(statistics, batch, counts)

  return TrainStep(
      _statistics(config, policy, temperature=1.0), loss, optimizer, schedule,
      clip_norm=config.optimizer.clip_norm, mesh=policy.mesh, state=state, frozen=policy.frozen,
      micro_batches=config.sft.micro_batches), state


def grpo_step(
    config: ConfigDict, policy: Policy, reference: Params | None, *, compile_only: bool = False
) -> tuple[TrainStep, TrainState]:
  """GRPO's step, and the state it begins with, around the policy's own arrays.

  Args:
    config: the options.
    policy: where RL starts.
    reference: parameters of the KL term's reference, shaped like those trained; None for no term.
    compile_only: the policy is in shapes, and so is the state.
  """
  grpo = config.grpo
  schedule = _schedule(config.optimizer, grpo.iterations)
  optimizer = _optimizer(config, schedule)
  state = (abstract_state(policy.mesh, policy.trained, optimizer) if compile_only
           else initial_state(policy.mesh, policy.trained, optimizer,
                              entropy_coefficient=grpo.entropy_coefficient))
  kl_coefficient = optax.linear_schedule(
      grpo.kl_coefficient, grpo.kl_coefficient * grpo.kl_final_fraction, grpo.iterations)
  steered = grpo.entropy_target > 0

  def loss(statistics, batch, counts, state):
    return grpo_loss(
        statistics, batch, counts, aggregation=grpo.aggregation,
        max_tokens=config.rollout.max_completion_tokens, ratio=grpo.ratio,
        clip_low=grpo.clip_low, clip_high=grpo.clip_high, dual_clip=grpo.dual_clip,
        importance_cap=grpo.importance_cap, kl_estimator=grpo.kl_estimator,
        kl_coefficient=kl_coefficient(state.step),
        entropy_coefficient=(
            state.entropy_coefficient if steered or grpo.entropy_coefficient else None))

  return TrainStep(
      _statistics(config, policy, config.rollout.temperature), loss, optimizer, schedule,
      clip_norm=config.optimizer.clip_norm, mesh=policy.mesh, state=state, frozen=policy.frozen,
      reference=reference, micro_batches=grpo.micro_batches,
      later_micro_batches=grpo.recursion.micro_batches,
      steer_entropy=partial(
          steer_entropy, target=grpo.entropy_target, rate=grpo.entropy_rate,
          maximum=grpo.entropy_maximum) if steered else None), state
