"""Ready pools of real workers, and pools of any workers that a config lists."""

import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, get_args, get_origin, get_type_hints

from conductor_jax.errors import UserError
from conductor_jax.workers.pool import Limits, Pool, WorkerSpec

# RL Conductor's controlled settings (arXiv 2512.04388): these, and as little reasoning as can be.
_CONTROLLED = {"temperature": 0.2, "max_tokens": 4096}


def paper_pool() -> Pool:
  """The seven workers of RL Conductor in its order, as training and controlled evaluation ask them.

  The closed models are at their vendors' OpenAI-compatible endpoints, the open ones at OpenRouter.
  The keys are read from GEMINI_API_KEY, ANTHROPIC_API_KEY, OPENAI_API_KEY and OPENROUTER_API_KEY.

  Prices are dollars per million tokens as of early 2026 and must be checked before they guard a
  budget, at ai.google.dev/gemini-api/docs/pricing (up to 200,000 prompt tokens),
  platform.claude.com/docs/en/about-claude/pricing, platform.openai.com/docs/pricing and
  openrouter.ai/models, where they differ between providers.

  Vendors retire models. By their announcements Claude Sonnet 4 left Anthropic's endpoint on 15 June
  2026; Gemini 2.5 Pro leaves on 1 December 2026, when Google answers its name with another model,
  and GPT-5 on 11 December 2026. Take `listed_pool` for successors.
  """
  openrouter = dict(base_url="https://openrouter.ai/api/v1", api_key_env="OPENROUTER_API_KEY")
  qwen3 = dict(
      **openrouter, model="qwen/qwen3-32b", price_in=0.08, price_out=0.24, context_length=40_960,
      dialect="openrouter")
  return Pool((
      WorkerSpec(
          name="gemini-2.5-pro", model="gemini-2.5-pro", api_key_env="GEMINI_API_KEY",
          base_url="https://generativelanguage.googleapis.com/v1beta/openai",
          price_in=1.25, price_out=10.0, price_cached=0.125, capacity="large",
          context_length=1_048_576, dialect="gemini",
          sampling={**_CONTROLLED, "reasoning_effort": "low"}),
      WorkerSpec(
          name="claude-sonnet-4", model="claude-sonnet-4-20250514", api_key_env="ANTHROPIC_API_KEY",
          base_url="https://api.anthropic.com/v1",
          price_in=3.0, price_out=15.0, price_cached=0.3, capacity="large",
          context_length=200_000, dialect="anthropic",
          sampling={**_CONTROLLED, "reasoning_effort": "none"}),
      WorkerSpec(
          name="gpt-5", model="gpt-5", api_key_env="OPENAI_API_KEY",
          base_url="https://api.openai.com/v1",
          price_in=1.25, price_out=10.0, price_cached=0.125, capacity="large",
          context_length=400_000, dialect="openai-reasoning",
          sampling={**_CONTROLLED, "temperature": 1.0, "reasoning_effort": "minimal"}),
      WorkerSpec(
          name="qwen3-32b", **qwen3, sampling={**_CONTROLLED, "reasoning_effort": "none"}),
      WorkerSpec(
          name="gemma-3-27b", **openrouter, model="google/gemma-3-27b-it", price_in=0.04,
          price_out=0.15, context_length=131_072, dialect="openrouter-gemma",
          sampling={**_CONTROLLED}),
      WorkerSpec(
          name="qwen3-32b-reasoning", **qwen3,
          sampling={**_CONTROLLED, "reasoning_effort": "minimal"}),
      WorkerSpec(
          name="deepseek-r1-distill-qwen-32b", **openrouter,
          model="deepseek/deepseek-r1-distill-qwen-32b", price_in=0.29, price_out=0.29,
          context_length=32_768, dialect="openrouter-deepseek-r1", sampling={**_CONTROLLED}),
  ))


@dataclass(frozen=True)
class _OpenWorker:
  """How a model of the hub is asked as a worker; fields as in `WorkerSpec`."""

  name: str
  dialect: str
  context_length: int
  capacity: str = "medium"
  options: Mapping[str, Any] = field(default_factory=dict)


# Context lengths are max_position_embeddings of the models' config.json. The Qwen2.5 models are
# LEMON's capacities (arXiv 2605.14483).
_OPEN_WORKERS: Mapping[str, tuple[_OpenWorker, ...]] = types.MappingProxyType({
    "Qwen/Qwen3-32B": (
        _OpenWorker("qwen3-32b", "qwen3", 40_960, options={"reasoning_effort": "none"}),
        _OpenWorker("qwen3-32b-reasoning", "qwen3", 40_960, options={"reasoning_effort": "medium"}),
    ),
    "google/gemma-3-27b-it": (_OpenWorker("gemma-3-27b", "gemma", 131_072),),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B": (
        _OpenWorker("deepseek-r1-distill-qwen-32b", "deepseek-r1", 131_072),),
    "Qwen/Qwen2.5-7B-Instruct": (_OpenWorker("qwen2.5-7b", "vllm", 32_768, "small"),),
    "Qwen/Qwen2.5-14B-Instruct": (_OpenWorker("qwen2.5-14b", "vllm", 32_768, "medium"),),
    "Qwen/Qwen2.5-32B-Instruct": (_OpenWorker("qwen2.5-32b", "vllm", 32_768, "large"),),
})


def open_pool(urls: Sequence[tuple[str, str]]) -> Pool:
  """Workers on vLLM servers that are running, asked as in `paper_pool`, at no price.

  Args:
    urls: the model's name on the Hugging Face hub, which is what its server calls it, and the
      endpoint up to and including `/v1`, of each server. Qwen3-32B is two workers, one that answers
      directly and one that reasons first.

  Raises:
    UserError: a model is none of the known ones, or is named twice.
  """
  workers = []
  for model, base_url in urls:
    if model not in _OPEN_WORKERS:
      raise UserError(f"model {model!r} must be one of {', '.join(_OPEN_WORKERS)}; a worker with "
                      "any other can be listed")
    workers += [
        WorkerSpec(
            name=worker.name, base_url=base_url, model=model, capacity=worker.capacity,
            context_length=worker.context_length, dialect=worker.dialect,
            sampling={**_CONTROLLED, **worker.options})
        for worker in _OPEN_WORKERS[model]]
  return Pool(tuple(workers))


def listed_pool(workers: Sequence[Mapping[str, Any]]) -> Pool:
  """Workers as a config describes them.

  Args:
    workers: of each worker the fields of `WorkerSpec` by their names, `limits` as a mapping of the
      fields of `Limits`. What has a default may be left out.

  Raises:
    UserError: a field is unknown, missing, of another type, or has a value that cannot be. The
      message is one line that names the worker, the field, its value and what to do.
  """
  specs = []
  for index, values in enumerate(workers):
    if not isinstance(values, Mapping):
      raise UserError(f"worker {index}: {values!r} must be a mapping of fields such as name, "
                      "base_url and model")
    specs.append(_checked(WorkerSpec, values, f"worker {values.get('name', index)!r}: "))
  return Pool(tuple(specs))


# Type of a field -> types of values that stand for it, and their name.
_KINDS: Mapping[type, tuple[tuple[type, ...], str]] = types.MappingProxyType({
    str: ((str,), "text"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    bool: ((bool,), "True or False"),
    tuple: ((list, tuple), "a list of names"),
    Mapping: ((Mapping,), "a mapping"),
    Limits: ((), "a mapping such as {'concurrent': 8}"),
})


def _checked(kind: type, values: Mapping[str, Any], place: str) -> Any:
  """Builds a dataclass from a mapping, after checks of names and types."""
  hints, options = get_type_hints(kind), {option.name: option for option in fields(kind)}
  for name, value in values.items():
    if name == "api_key":
      raise UserError(f"{place}api_key must go: keys come from the environment variable that "
                      "api_key_env names")
    if name not in options:
      raise UserError(f"{place}{name}={value!r} must go, for there are only {', '.join(options)}")
  for name, option in options.items():
    if name not in values and option.default is option.default_factory is MISSING:
      raise UserError(f"{place}{name} is missing: add it")
  return kind(**{name: _of_type(hints[name], value, place, name) for name, value in values.items()})


def _of_type(hint: Any, value: Any, place: str, name: str) -> Any:
  """The value as its type hint wants it."""
  kinds = get_args(hint) if get_origin(hint) is types.UnionType else (hint,)
  if value is None and type(None) in kinds:
    return None
  kind = get_origin(kinds[0]) or kinds[0]
  if kind is Limits and isinstance(value, Mapping):
    return _checked(Limits, value, f"{place}{name}.")
  wanted, words = _KINDS[kind]
  # A bool is an int in Python, and in a config a mistake.
  fits = isinstance(value, wanted) and (kind is bool or not isinstance(value, bool))
  if kind is tuple and fits:
    fits = all(isinstance(entry, str) for entry in value)
  if not fits:
    none = " or None" if type(None) in kinds else ""
    raise UserError(f"{place}{name}={value!r} must be {words}{none}")
  return tuple(value) if kind is tuple else dict(value) if kind is Mapping else value
