"""What the conductor is asked.

The contents are those of RL Conductor's prompt (arXiv 2512.04388): how a question is answered, what
a step is, the format, examples, the question, and the models as mere numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from conductor_jax.errors import UserError
from conductor_jax.workflows.context import shorten
from conductor_jax.workflows.format import PlanFormat

_NO_ANSWER = "(no answer)"


@dataclass(frozen=True)
class Shot:
  """An example in the prompt.

  Attributes:
    question: what is asked.
    models: the numbers of the models it offers.
    completion: the plan as it is to be written.
  """

  question: str
  models: Sequence[int]
  completion: str


@dataclass(frozen=True)
class PromptTemplate:
  """A conductor's prompt, but for the question.

  Attributes:
    format: what plans are made of.
    shots: the examples.
    prefill: how the conductor's turn begins, not sampled and not trained.
  """

  format: PlanFormat
  shots: tuple[Shot, ...] = ()
  prefill: str = ""

  def messages(
      self, question: str, models: Sequence[int], *, previous: str | None = None
  ) -> list[dict[str, str]]:
    """The chat that a conductor continues.

    Models appear as "Model 0", "Model 1", …: names, sizes and prices stay hidden, so what each can
    do has to be learnt.

    Args:
      question: the user's.
      models: the numbers of those on offer.
      previous: the last answer of the round before, None in the first round.

    Returns:
      A system and a user message.
    """
    system = self.format.instructions(later=previous is not None)
    for number, shot in enumerate(self.shots, start=1):
      system += (f"\n\nExample {number}\n\n{self._asked(shot.question, shot.models)}\n\n"
                 f"{self.prefill}{shot.completion}")
    return [{"role": "system", "content": system},
            {"role": "user", "content": self._asked(question, models, previous)}]

  def _asked(self, question: str, models: Sequence[int], previous: str | None = None) -> str:
    """The user's part."""
    parts = [f"Question: {question}",
             *([] if previous is None else [f"Answer so far: {previous}"]),
             self.format.offered(models)]
    return "\n\n".join(parts)

  def tokens(
      self, tokenizer: PreTrainedTokenizerBase, question: str, models: Sequence[int], *,
      previous: str | None = None, limit: int | None = None
  ) -> list[int]:
    """The tokens that a conductor continues, the prefill at their end.

    Args:
      tokenizer: has a chat template.
      question, models, previous: as in `messages`.
      limit: tokens that there may be; the beginning of the previous answer is left out where there
        would be more. What is too long all the same is returned as it is.
    """
    whole = text = None if previous is None else previous if previous.strip() else _NO_ANSWER
    excess, length = 0, len((whole or "").encode(errors="replace"))
    while True:
      tokens = tokenizer.apply_chat_template(
          self.messages(question, models, previous=text), add_generation_prompt=True,
          tokenize=True, return_dict=False)
      tokens += tokenizer.encode(self.prefill, add_special_tokens=False)
      if whole is None or limit is None or len(tokens) <= limit or excess > length:
        return tokens
      # A token is a byte at least, so this is never too much.
      excess += len(tokens) - limit
      (_, text), = shorten([("", whole)], excess)

  def check_prefill(
      self, tokenizer: PreTrainedTokenizerBase, question: str, models: Sequence[int],
      completion: str
  ) -> None:
    """Refuses a prefill that merges with what stands before or after it.

    The conductor would be trained to go on from tokens that its tokenizer never makes of a text.

    Args:
      tokenizer: has a chat template.
      question, models: as in `messages`.
      completion: what a conductor may write after the prefill.

    Raises:
      UserError: says at which end, and what helps.
    """
    def encode(text: str) -> list[int]:
      return tokenizer.encode(text, add_special_tokens=False)

    if not self.prefill:
      return
    chat = tokenizer.apply_chat_template(
        self.messages(question, models), add_generation_prompt=True, tokenize=False)
    prefill = encode(self.prefill)
    for whole, parts, side in (
        (chat + self.prefill, encode(chat) + prefill, "the chat template before it"),
        (self.prefill + completion, prefill + encode(completion), "the plan after it")):
      if encode(whole) != parts:
        raise UserError(
            f"--config.workflow.prefill={self.prefill!r}: the tokenizer joins it with {side}: "
            "begin it with a letter, end it with a full stop and a line break, or leave it empty")
