"""What each family of endpoints accepts, and how requests and chats are fitted to it.

All speak the OpenAI chat protocol, each in a dialect of its own: in how the token limit is called,
in which parameters there are and how reasoning is asked for, in whether there is a system role and
roles must alternate. An endpoint refuses what is outside its dialect, or passes over it in silence.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from conductor_jax.errors import UserError

# The user's turn before a chat that would begin with the assistant's.
OPENING = "Begin."


@dataclass(frozen=True)
class Dialect:
  """What a family of endpoints accepts.

  Attributes:
    options: request parameters that are sent as they are. `max_tokens` and `reasoning_effort` are
      none of them, for they are expressed by the fields below.
    token_limit: the endpoint's name for `max_tokens`.
    fixed: parameters that are accepted at one value only.
    reasoning_effort: effort -> the request fields that ask for it.
    fixed_reasoning: like `fixed`, while an effort other than "none" is asked for.
    budgets: effort -> tokens of reasoning, where they must be fewer than `max_tokens`.
    system: whether there is a system role.
    alternates: whether the turns of user and assistant must alternate, beginning with the user's,
      after one system turn at most.
  """

  options: frozenset[str]
  token_limit: str = "max_tokens"
  fixed: Mapping[str, Any] = field(default_factory=dict)
  reasoning_effort: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
  fixed_reasoning: Mapping[str, Any] = field(default_factory=dict)
  budgets: Mapping[str, int] = field(default_factory=dict)
  system: bool = True
  alternates: bool = False


# https://platform.openai.com/docs/api-reference/chat/create. Which efforts there are depends on the
# model: GPT-5 knows "minimal" and not "none", its successors the reverse.
_OPENAI = Dialect(
    options=frozenset((
        "frequency_penalty", "logit_bias", "presence_penalty", "response_format", "seed", "stop",
        "temperature", "top_p")),
    reasoning_effort={effort: {"reasoning_effort": effort}
                      for effort in ("none", "minimal", "low", "medium", "high", "xhigh")})

# The same page, and https://learn.microsoft.com/azure/ai-foundry/openai/how-to/reasoning: neither
# top_p, penalties, logit_bias nor stop.
_OPENAI_REASONING = replace(
    _OPENAI, options=frozenset(("response_format", "seed", "temperature")),
    token_limit="max_completion_tokens", fixed={"temperature": 1})

# https://platform.claude.com/docs/en/api/openai-sdk: seed, penalties and reasoning_effort are
# ignored, and temperatures above 1 count as 1. Budgets of thinking, 1024 tokens at least and with a
# temperature of 1, are those of models up to 4.6; later ones want other forms of `thinking`:
# https://platform.claude.com/docs/en/build-with-claude/extended-thinking. The tokens of an effort
# are Google's, see below.
_BUDGETS = {"low": 1024, "medium": 8192, "high": 24_576}
_ANTHROPIC = Dialect(
    options=frozenset(("stop", "temperature", "thinking", "top_p")),
    reasoning_effort={
        "none": {"thinking": {"type": "disabled"}},
        **{effort: {"thinking": {"type": "enabled", "budget_tokens": tokens}}
           for effort, tokens in _BUDGETS.items()}},
    fixed_reasoning={"temperature": 1},
    budgets=_BUDGETS,
    alternates=True)

# https://ai.google.dev/gemini-api/docs/openai, where an effort of low, medium or high is 1024, 8192
# or 24,576 tokens, and "none" is not for 2.5 Pro. The endpoint refuses seed, penalties and top_k as
# unknown: https://discuss.ai.google.dev/t/95991; and "minimal", whatever that page says:
# https://discuss.ai.google.dev/t/117875.
_GEMINI = Dialect(
    options=frozenset(("response_format", "stop", "temperature", "top_p")),
    reasoning_effort={effort: {"reasoning_effort": effort}
                      for effort in ("none", "low", "medium", "high")})

# vLLM documentation, "OpenAI-Compatible Server".
_VLLM = Dialect(
    options=_OPENAI.options | {
        "allowed_token_ids", "bad_words", "chat_template_kwargs", "ignore_eos", "min_p",
        "min_tokens", "repetition_penalty", "stop_token_ids", "top_k"},
    reasoning_effort={effort: {"reasoning_effort": effort} for effort in ("low", "medium", "high")})

# https://ai.google.dev/gemma/docs/core/prompt-structure; the chat template raises where roles do
# not alternate.
_GEMMA = replace(_VLLM, reasoning_effort={}, system=False, alternates=True)

# https://github.com/vllm-project/vllm/issues/6862: alternating after an optional system turn.
_MISTRAL = replace(_VLLM, reasoning_effort={}, alternates=True)

# https://qwen.readthedocs.io/en/latest/deployment/vllm.html: it thinks or does not, and knows no
# degrees.
_QWEN3 = replace(_VLLM, reasoning_effort={
    "none": {"chat_template_kwargs": {"enable_thinking": False}},
    "medium": {"chat_template_kwargs": {"enable_thinking": True}}})

# https://huggingface.co/deepseek-ai/DeepSeek-R1, "Usage Recommendations": everything belongs into
# the user's turns. It always reasons.
_DEEPSEEK_R1 = replace(_VLLM, reasoning_effort={}, system=False)

# https://openrouter.ai/docs/api-reference/parameters and
# https://openrouter.ai/docs/use-cases/reasoning-tokens.
_OPENROUTER = Dialect(
    options=_OPENAI.options | {"min_p", "provider", "repetition_penalty", "top_a", "top_k"},
    reasoning_effort={effort: {"reasoning": {"effort": effort}}
                      for effort in ("none", "minimal", "low", "medium", "high", "xhigh")})

DIALECTS: Mapping[str, Dialect] = MappingProxyType({
    "openai": _OPENAI,
    "openai-reasoning": _OPENAI_REASONING,
    "anthropic": _ANTHROPIC,
    "gemini": _GEMINI,
    "vllm": _VLLM,
    "gemma": _GEMMA,
    "mistral": _MISTRAL,
    "qwen3": _QWEN3,
    "deepseek-r1": _DEEPSEEK_R1,
    "openrouter": _OPENROUTER,
    "openrouter-gemma": replace(_OPENROUTER, reasoning_effort={}, system=False, alternates=True),
    "openrouter-deepseek-r1": replace(_OPENROUTER, reasoning_effort={}, system=False),
})


def dialect(name: str) -> Dialect:
  """The dialect of a name.

  Raises:
    UserError: there is none.
  """
  if name not in DIALECTS:
    raise UserError(f"dialect={name!r} must be one of {', '.join(DIALECTS)}")
  return DIALECTS[name]


def request_options(
    family: Dialect | str, sampling: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
  """The request fields that express a worker's sampling parameters.

  Args:
    family: a dialect or its name.
    sampling: OpenAI's parameters, with the token limit as `max_tokens`.

  Returns:
    The fields, and one line for every parameter that is not sent.

  Raises:
    UserError: there is no dialect of that name.
  """
  spoken = _dialect_of(family)
  effort, refusal = _effort_fields(spoken, sampling)
  reasons = effort and sampling["reasoning_effort"] != "none"
  fixed = {**spoken.fixed, **(spoken.fixed_reasoning if reasons else {})}
  fields, unsent = {}, []
  for name, value in sampling.items():
    reason = ""
    if name == "max_tokens":
      fields[spoken.token_limit] = value
    elif name == "reasoning_effort":
      reason = refusal
    elif name not in spoken.options:
      reason = f"the endpoint takes {', '.join(sorted(spoken.options | {'max_tokens'}))} only"
    elif name in fixed and value != fixed[name]:
      reason = f"the endpoint takes {fixed[name]!r} only"
    else:
      fields[name] = value
    if reason:
      unsent.append(f"{name}={value!r} is not sent: {reason}")
  for name, value in effort.items():
    fields[name] = {**fields.get(name, {}), **value} if isinstance(value, Mapping) else value
  return fields, unsent


def _effort_fields(
    spoken: Dialect, sampling: Mapping[str, Any]
) -> tuple[Mapping[str, Any], str]:
  """The fields that ask for the effort, or none and the reason why."""
  effort, efforts = sampling.get("reasoning_effort"), spoken.reasoning_effort
  if not efforts:
    return {}, "the endpoint lets nobody choose it"
  if not isinstance(effort, str) or effort not in efforts:
    return {}, f"the endpoint takes {', '.join(efforts)} only"
  budget, limit = spoken.budgets.get(effort, 0), sampling.get("max_tokens", math.inf)
  if budget >= limit:
    return {}, f"its {budget} tokens of reasoning must be fewer than max_tokens={limit}"
  return efforts[effort], ""


def accepted_messages(
    family: Dialect | str, messages: Sequence[Mapping[str, str]]
) -> Sequence[Mapping[str, str]]:
  """Fits a chat to a dialect; all its text stays, in its order.

  Where there is no system role, or only one system turn at the beginning, other system turns join
  the user's turn that follows, or become one. Where roles must alternate, neighbours of one role
  become one turn, and `OPENING` goes before a first turn of the assistant. Joined texts have a
  blank line between them.

  Args:
    family: a dialect or its name.
    messages: the chat, each turn with `role` and `content`.

  Returns:
    The fitted chat; the argument itself if the dialect has no demands.

  Raises:
    UserError: there is no dialect of that name.
  """
  spoken = _dialect_of(family)
  if spoken.system and not spoken.alternates:
    return messages
  kept = 0
  if spoken.system:
    kept = sum(1 for _ in itertools.takewhile(lambda turn: turn["role"] == "system", messages))
    kept = kept if kept < len(messages) else 0  # a chat needs the user's turn
  turns = [*messages[:kept], *_without_system(messages[kept:])]
  return _alternating(turns) if spoken.alternates else turns


def _without_system(messages: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
  turns, instructions = [], []
  for turn in messages:
    if turn["role"] == "system":
      instructions.append(turn["content"])
      continue
    if any(instructions):
      if turn["role"] == "user":
        turn = _turn("user", [*instructions, turn["content"]])
      else:
        turns.append(_turn("user", instructions))
    instructions = []
    turns.append(turn)
  if any(instructions):
    turns.append(_turn("user", instructions))
  return turns


def _alternating(turns: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
  merged = []
  for role, neighbours in itertools.groupby(turns, key=lambda turn: turn["role"]):
    first, *others = neighbours
    texts = [first["content"], *(turn["content"] for turn in others)]
    merged.append(_turn(role, texts) if others else first)
  start = 1 if merged and merged[0]["role"] == "system" else 0
  if merged[start:] and merged[start]["role"] == "assistant":
    merged.insert(start, _turn("user", [OPENING]))
  return merged


def _turn(role: str, texts: Iterable[str]) -> dict[str, str]:
  return {"role": role, "content": "\n\n".join(filter(None, texts))}


def _dialect_of(family: Dialect | str) -> Dialect:
  return dialect(family) if isinstance(family, str) else family
