"""The strategies that can be evaluated, by name: a new one is a line of `STRATEGIES`."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

from ml_collections import ConfigDict

from conductor_jax.errors import UserError
from conductor_jax.models.tokenizer import load_tokenizer
from conductor_jax.reporting.progress import CallRates, Terminal
from conductor_jax.strategies.random_plan import RandomPlan
from conductor_jax.strategies.single_worker import (
    BestSingleWorker,
    SingleWorker,
    best_single_worker,
)
from conductor_jax.strategies.strategy import Strategy
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Task
from experiments.chat import Chat
from experiments.components import Splits, Workers, make_offers, plan_format
from experiments.conductor import conductor_strategy, make_conductor, open_sampler
from experiments.policy import check_tokenizer, load_policy, model_tokenizer, open_mesh
from experiments.run import Clock, Run
from experiments.trained import trained_policy
from experiments.workdir import StopSignals

# Of `workflow`: what a policy that is trained has learnt to read and to write.
_PROMPT_OPTIONS = ("max_steps", "access", "subtasks", "few_shot", "few_shot_source",
                   "few_shot_file", "prefill")
# Stands for each worker alone.
ALL_WORKERS = "all_workers"


@dataclass(frozen=True)
class Setting:
  """What strategies are made of.

  Attributes:
    config: the options.
    workdir: of the evaluation.
    terminal: where to print.
    stop: whether the evaluation was asked to.
    stack: closes what a strategy keeps open.
    workers: who can be asked.
    graders: judge the answers.
    training: tasks that a strategy may be fitted to, none of them evaluated.
    tasks: those that are evaluated.
    run: the work directory of the training run whose policy is the conductor; None for the
      configured weights.
    variants: those of earlier sessions, by the strategy's name.
  """

  config: ConfigDict
  workdir: Path
  terminal: Terminal
  stop: StopSignals
  stack: contextlib.ExitStack
  workers: Workers
  graders: Graders
  training: Sequence[Task]
  tasks: Sequence[Task]
  run: Path | None
  variants: Mapping[str, str]


def _conductor(
    setting: Setting, name: str = "conductor", *, empty_access: bool = False) -> Strategy:
  """The policy of a training run, or the configured weights as they are."""
  config = setting.config.copy_and_resolve_references()
  if setting.run is not None:
    trained, policy, version, variant = trained_policy(setting.run, config.mesh)
    config.model.update(trained.model)
    for key in _PROMPT_OPTIONS:
      if trained.workflow[key] != config.workflow[key]:
        setting.terminal.print(
            f"{name}: was trained with workflow.{key}={trained.workflow[key]!r}, and is asked with "
            f"{config.workflow[key]!r}")
    tokenizer = load_tokenizer(setting.run / "tokenizer")
  else:
    policy, version, variant = load_policy(config, open_mesh(config)), 0, config.model.weights
    tokenizer = model_tokenizer(config)
  check_tokenizer(tokenizer, policy.shape)
  portal, client, executor = setting.workers
  splits = Splits([*setting.training, *setting.tasks], [])
  offers = make_offers(config)
  run = Run(
      config, setting.workdir, Clock(), setting.terminal, setting.stop, portal, client, executor,
      splits, offers, Chat(config, splits, offers.warm_start, tokenizer), policy)
  sampler = setting.stack.enter_context(open_sampler(run, policy))
  sampler.stage(policy.whole(policy.trained), version)
  portal.call(sampler.load)
  conductor = make_conductor(run, sampler, setting.graders, empty_access=empty_access)
  return conductor_strategy(run, conductor, name=name, variant=variant)


def _best_single_worker(setting: Setting) -> Strategy:
  """The worker that was best before, or else is on training tasks."""
  portal, client, executor = setting.workers
  offers = make_offers(setting.config).heldout
  names = [worker.name for worker in executor.pool.workers]
  ranking = setting.variants.get("best_single_worker", "").split(" > ")
  if set(ranking) <= set(names):
    return BestSingleWorker(
        [names.index(name) for name in ranking], executor, setting.graders, offers)
  tasks = setting.training[:setting.config.evaluation.tasks]
  if not tasks:
    raise UserError(
        "best_single_worker is chosen on training tasks, and --config.tasks.benchmarks and "
        "--config.evaluation.tasks leave none: change them, or leave it out of --strategies")
  with setting.terminal.waiting("every worker alone", CallRates(client.activity)):
    best = portal.call(partial(
        best_single_worker, executor, setting.graders, tasks, offers=offers,
        seed=setting.config.seed))
  setting.terminal.print(f"best_single_worker: {best.variant}, of {len(tasks)} training tasks")
  return best


def _random_plan(setting: Setting) -> Strategy:
  return RandomPlan(
      setting.workers.executor, setting.graders, offers=make_offers(setting.config).heldout,
      format=plan_format(setting.config))


_WITHOUT_ACCESS = "conductor_without_access"
STRATEGIES: Mapping[str, Callable[[Setting], Strategy]] = MappingProxyType({
    "conductor": _conductor,
    # The same plans with their access lists emptied before they run.
    _WITHOUT_ACCESS: partial(_conductor, name=_WITHOUT_ACCESS, empty_access=True),
    "best_single_worker": _best_single_worker,
    "random_plan": _random_plan,
})


def strategy_names(asked: Sequence[str], workers: Sequence[str]) -> list[str]:
  """The strategies that are meant, each once, in the order asked.

  Args:
    asked: names in `STRATEGIES`, workers' names with or without "single:" before them, and
      `ALL_WORKERS`.
    workers: the names of all workers.

  Raises:
    UserError: there is none of a name, or none is asked for; says which there are.
  """
  names: dict[str, None] = {}
  for name in asked:
    alone = name.removeprefix("single:")
    if name == ALL_WORKERS:
      names |= dict.fromkeys(workers)
    elif name in STRATEGIES or alone in workers:
      names[name if name in STRATEGIES else alone] = None
    else:
      raise UserError(
          f"--strategies: there is no strategy {name!r}: choose from "
          f"{', '.join((*STRATEGIES, ALL_WORKERS, *workers))}")
  if not names:
    raise UserError("--strategies names none: choose from "
                    f"{', '.join((*STRATEGIES, ALL_WORKERS, *workers))}")
  if clash := set(workers) & set(STRATEGIES):
    raise UserError(f"a worker is called {min(clash)!r}, as a strategy is: rename it in "
                    "--config.pool")
  return list(names)


def check_policy(names: Sequence[str], config: ConfigDict, run: Path | None) -> None:
  """Refuses a conductor without a policy.

  Raises:
    UserError: says what to name.
  """
  asked = {"conductor", _WITHOUT_ACCESS} & set(names)
  if asked and run is None and not config.model.weights:
    raise UserError(f"--strategies={min(asked)} needs a policy: name a training run with --run, or "
                    "weights with --config.model.weights")


def make_strategy(name: str, setting: Setting) -> Strategy:
  """The strategy of a name that `strategy_names` has returned.

  Raises:
    UserError: it cannot be made.
    OutOfBudget: the workers that it has to ask first cannot be paid.
  """
  if name in STRATEGIES:
    return STRATEGIES[name](setting)
  executor = setting.workers.executor
  names = [worker.name for worker in executor.pool.workers]
  return SingleWorker(names.index(name), executor, setting.graders)
