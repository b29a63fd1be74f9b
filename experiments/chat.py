"""What the configured conductor reads, and example completions for its warm start."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict
from transformers import PreTrainedTokenizerBase

from conductor_jax.arena.plans import DrawPlan, example_plan, later_plan, plain_plan
from conductor_jax.arena.tokenizer import train_tokenizer
from conductor_jax.arena.world import stable_hash
from conductor_jax.errors import UserError
from conductor_jax.tasks.task import Task
from conductor_jax.training.sft import Examples
from conductor_jax.workers.offer import Offer, OfferLaw
from conductor_jax.workflows.few_shot import OUTSIDE, read_examples
from conductor_jax.workflows.format import Example, PlanFormat
from conductor_jax.workflows.prompts import PromptTemplate, Shot
from experiments.components import Splits, plan_format

# Tasks whose chats the arena's tokenizer is trained on.
_TOKENIZER_TASKS = 2400


class Fitting(NamedTuple):
  """The tasks whose prompts are short enough.

  Attributes:
    splits: they.
    left_out: how many are not.
    shortest, longest: tokens of their prompts, in a first round.
  """

  splits: Splits
  left_out: int
  shortest: int
  longest: int


class Chat:
  """Turns tasks into prompts, and into example completions for the warm start.

  Attributes:
    template: of the prompts.
    tokenizer: reads and writes them.
  """

  def __init__(
      self, config: ConfigDict, splits: Splits, offers: OfferLaw,
      tokenizer: PreTrainedTokenizerBase | None):
    """
    Args:
      config: the options.
      splits: the tasks.
      offers: which workers questions of the warm start are offered.
      tokenizer: that of the model's weights; None trains one on chats of the training tasks.

    Raises:
      UserError: the examples in the prompt or its prefill cannot be had.
    """
    self._config, self._offers = config, offers
    self._draw: DrawPlan = example_plan if config.tasks.source == "arena" else plain_plan
    format = plan_format(config)
    self.template = PromptTemplate(
        format, self._shots(splits, format), config.workflow.prefill)
    self.tokenizer = self._trained(splits) if tokenizer is None else tokenizer
    task = splits.train[0]
    self.template.check_prefill(
        self.tokenizer, task.question, offers.whole.numbers,
        self._example(task, offers.whole, np.random.default_rng(config.seed)))

  def _shots(self, splits: Splits, format: PlanFormat) -> tuple[Shot, ...]:
    """The examples in the prompt."""
    options = self._config.workflow
    wanted, source = options.few_shot, options.few_shot_source
    if not wanted:
      return ()
    if source == "training":
      generator = np.random.default_rng([self._config.seed, stable_hash("few shot")])
      examples = [self._draw(task, self._offers.whole.numbers, generator)
                  for task in splits.train[:wanted]]
    else:
      examples = read_examples(Path(options.few_shot_file)) if source == "file" else OUTSIDE
    short = [each for each in examples if len(each.workflow.steps) <= format.max_steps]
    if len(short) < wanted:
      raise UserError(
          f"--config.workflow.few_shot={wanted}: of the examples of few_shot_source={source} only "
          f"{len(short)} have {format.max_steps} steps at most")
    try:
      return tuple(
          Shot(each.question, format.example_models(each, self._offers.whole.numbers),
               format.written(each)) for each in short[:wanted])
    except ValueError as fault:
      raise UserError(f"--config.workflow.few_shot_source={source}: {fault}") from fault

  def _trained(self, splits: Splits) -> PreTrainedTokenizerBase:
    config = self._config
    generator = np.random.default_rng([config.seed, stable_hash("tokenizer")])
    texts = []
    for task in splits.train[:_TOKENIZER_TASKS]:
      texts += self._texts(Example(task.question, self._offers.whole.numbers, "", None))
      texts.append(self._example(task, self._offers.whole, generator))
      if config.workflow.max_rounds > 1:
        later = later_plan(task, self._offers.whole.numbers, generator, self._draw)
        texts += [*self._texts(later), self.template.format.written(later)]
    return train_tokenizer(texts, config.tokenizer.vocab_size)

  def _texts(self, example: Example) -> list[str]:
    messages = self.template.messages(
        example.question, example.models, previous=example.previous)
    return [message["content"] for message in messages]

  def prompt(self, task: Task, offer: Offer | None = None, previous: str | None = None
             ) -> list[int]:
    """The tokens that the conductor goes on from; without an offer, with all workers."""
    return self.template.tokens(
        self.tokenizer, task.question, (offer or self._offers.whole).numbers, previous=previous,
        limit=self._config.rollout.max_prompt_tokens)

  def _example(self, task: Task, offer: Offer, generator: np.random.Generator) -> str:
    """Draws an example completion of a first round."""
    return self.template.format.written(self._draw(task, offer.numbers, generator))

  def _encoded(self, completion: str) -> np.ndarray:
    return np.array(
        [*self.tokenizer.encode(completion, add_special_tokens=False), self.tokenizer.eos_token_id],
        np.int32)

  def example_tokens(self, task: Task, generator: np.random.Generator) -> np.ndarray:
    """Draws an example completion with its end-of-sequence token, int32[tokens]."""
    return self._encoded(self._example(task, self._offers.whole, generator))

  def examples(self, task: Task, generator: np.random.Generator, count: int) -> Examples:
    """Draws a prompt with as many example completions; where there are later rounds, every second
    one is of these."""
    offer = self._offers.draw(generator)
    if self._config.workflow.max_rounds > 1 and generator.random() < 0.5:
      drawn = [later_plan(task, offer.numbers, generator, self._draw) for _ in range(count)]
      # What is done about an answer does not depend on it, so all may be about one.
      return Examples(
          self.prompt(task, offer, drawn[0].previous),
          [self._encoded(self.template.format.written(each)) for each in drawn])
    return Examples(self.prompt(task, offer), [
        self._encoded(self._example(task, offer, generator)) for _ in range(count)])

  def fitting(self, splits: Splits) -> Fitting:
    """Leaves out tasks whose prompt is too long.

    Raises:
      UserError: nothing is left of a split.
    """
    limit = self._config.rollout.max_prompt_tokens
    lengths = {id(task): len(self.prompt(task)) for task in (*splits.train, *splits.heldout)}

    def fitting(tasks: Sequence[Task]) -> list[Task]:
      return [task for task in tasks if lengths[id(task)] <= limit]

    kept = splits._replace(train=fitting(splits.train), heldout=fitting(splits.heldout))
    if not (kept.train and kept.heldout):
      raise UserError(
          f"--config.rollout.max_prompt_tokens={limit}: every prompt is longer, the shortest has "
          f"{min(lengths.values())}; raise it, or lower --config.workflow.few_shot")
    tasks = [*kept.train, *kept.heldout]
    used = [lengths[id(task)] for task in tasks]
    return Fitting(kept, len(lengths) - len(used), min(used), max(used))

  def prompt_line(self, fitting: Fitting) -> str:
    """How long prompts are, in a sentence."""
    around = len(self.template.tokens(self.tokenizer, "", self._offers.whole.numbers))
    return (f"prompts: {fitting.shortest} to {fitting.longest} tokens, {around} of them around the "
            f"question, with {len(self.template.shots)} examples")
