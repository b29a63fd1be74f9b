import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_jax.errors import UserError
from conductor_jax.workers.dialects import (
    DIALECTS,
    OPENING,
    accepted_messages,
    dialect,
    request_options,
)
from conductor_jax.workflows.context import inlined_context, message_context

FAMILIES = sorted(DIALECTS)


def chat(*turns):
  """A chat from "role: text"."""
  return [dict(zip(("role", "content"), turn.split(": ", 1), strict=True)) for turn in turns]


def flat(messages):
  return [f"{turn['role']}: {turn['content']}" for turn in messages]


def test_an_unknown_dialect_is_refused_with_the_known_ones():
  with pytest.raises(UserError) as fault:
    dialect("cohere")
  assert str(fault.value) == f"dialect='cohere' must be one of {', '.join(DIALECTS)}"
  with pytest.raises(UserError, match="'cohere'"):
    request_options("cohere", {})
  with pytest.raises(UserError, match="'cohere'"):
    accepted_messages("cohere", [])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_name_and_its_dialect_say_the_same(family):
  sampling = {"temperature": 1, "max_tokens": 9, "top_k": 3, "reasoning_effort": "none"}
  assert request_options(family, sampling) == request_options(dialect(family), sampling)
  messages = chat("system: s", "assistant: a")
  assert accepted_messages(family, messages) == accepted_messages(dialect(family), messages)


@pytest.mark.parametrize(("family", "name"), [
    *((family, "max_tokens") for family in FAMILIES if family != "openai-reasoning"),
    ("openai-reasoning", "max_completion_tokens")])
def test_the_token_limit_is_sent_by_the_endpoints_name(family, name):
  assert request_options(family, {"max_tokens": 64}) == ({name: 64}, [])


def test_no_endpoint_is_sent_a_seed_that_it_refuses_or_ignores():
  without = {family for family in FAMILIES if "seed" not in DIALECTS[family].options}
  assert without == {"anthropic", "gemini"}


@pytest.mark.parametrize(("family", "sampling", "fields"), [
    ("openai", {"temperature": 0.2, "top_p": 0.9, "stop": ["#"]},
     {"temperature": 0.2, "top_p": 0.9, "stop": ["#"]}),
    ("openai", {"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
    ("openai-reasoning", {"temperature": 1.0, "max_tokens": 9, "reasoning_effort": "minimal"},
     {"temperature": 1.0, "max_completion_tokens": 9, "reasoning_effort": "minimal"}),
    ("anthropic", {"reasoning_effort": "none", "temperature": 0.2},
     {"thinking": {"type": "disabled"}, "temperature": 0.2}),
    ("anthropic", {"reasoning_effort": "low", "temperature": 1, "max_tokens": 4096},
     {"thinking": {"type": "enabled", "budget_tokens": 1024}, "temperature": 1,
      "max_tokens": 4096}),
    ("gemini", {"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
    ("vllm", {"top_k": 20, "min_p": 0.1}, {"top_k": 20, "min_p": 0.1}),
    ("qwen3", {"reasoning_effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}),
    ("qwen3", {"reasoning_effort": "medium"}, {"chat_template_kwargs": {"enable_thinking": True}}),
    ("openrouter", {"reasoning_effort": "minimal"}, {"reasoning": {"effort": "minimal"}}),
])
def test_what_an_endpoint_takes_is_sent_in_its_words(family, sampling, fields):
  assert request_options(family, sampling) == (fields, [])


@pytest.mark.parametrize(("family", "sampling", "fields", "line"), [
    ("gemini", {"top_k": 20, "temperature": 0.2}, {"temperature": 0.2},
     "top_k=20 is not sent: the endpoint takes max_tokens, response_format, stop, temperature, "
     "top_p only"),
    ("openai-reasoning", {"temperature": 0.2}, {},
     "temperature=0.2 is not sent: the endpoint takes 1 only"),
    ("openai-reasoning", {"reasoning_effort": "huge"}, {},
     "reasoning_effort='huge' is not sent: the endpoint takes none, minimal, low, medium, high, "
     "xhigh only"),
    ("gemini", {"reasoning_effort": "minimal"}, {},
     "reasoning_effort='minimal' is not sent: the endpoint takes none, low, medium, high only"),
    ("openai", {"reasoning_effort": ["low"]}, {},
     "reasoning_effort=['low'] is not sent: the endpoint takes none, minimal, low, medium, high, "
     "xhigh only"),
    ("qwen3", {"reasoning_effort": "high"}, {},
     "reasoning_effort='high' is not sent: the endpoint takes none, medium only"),
    ("deepseek-r1", {"reasoning_effort": "none"}, {},
     "reasoning_effort='none' is not sent: the endpoint lets nobody choose it"),
    ("anthropic", {"reasoning_effort": "medium", "max_tokens": 8192}, {"max_tokens": 8192},
     "reasoning_effort='medium' is not sent: its 8192 tokens of reasoning must be fewer than "
     "max_tokens=8192"),
    ("anthropic", {"temperature": 0.2, "reasoning_effort": "low"},
     {"thinking": {"type": "enabled", "budget_tokens": 1024}},
     "temperature=0.2 is not sent: the endpoint takes 1 only"),
])
def test_what_an_endpoint_does_not_take_is_reported_and_not_sent(family, sampling, fields, line):
  assert request_options(family, sampling) == (fields, [line])


@given(
    st.sampled_from(FAMILIES),
    st.dictionaries(
        st.sampled_from(("temperature", "top_k", "top_p", "stop", "max_tokens", "foo",
                         "reasoning_effort")),
        st.sampled_from((1, 0.2, "none", "low", "medium"))))
def test_every_parameter_is_sent_or_reported(family, sampling):
  # A word is no limit, and a limit is checked where workers are described.
  if isinstance(sampling.get("max_tokens"), str):
    del sampling["max_tokens"]
  fields, unsent = request_options(family, sampling)
  reported = {line.split("=")[0] for line in unsent}
  assert reported <= set(sampling)
  kept = set(sampling) - reported
  words = {"max_tokens": DIALECTS[family].token_limit}
  assert {words.get(name, name) for name in kept - {"reasoning_effort"}} <= set(fields)
  assert len(fields) == len(kept)


def test_an_effort_joins_other_arguments_of_the_chat_template():
  sampling = {"chat_template_kwargs": {"date": "today"}, "reasoning_effort": "none"}
  fields, unsent = request_options("qwen3", sampling)
  assert fields == {"chat_template_kwargs": {"date": "today", "enable_thinking": False}}
  assert unsent == []
  assert sampling["chat_template_kwargs"] == {"date": "today"}


@pytest.mark.parametrize("family", FAMILIES)
def test_fields_are_json_and_a_change_of_them_changes_no_dialect(family):
  for effort in DIALECTS[family].reasoning_effort:
    fields, _ = request_options(family, {"reasoning_effort": effort})
    before = json.dumps(fields)
    for value in fields.values():
      if isinstance(value, dict):
        value.clear()
    assert json.dumps(request_options(family, {"reasoning_effort": effort})[0]) == before


@pytest.mark.parametrize("family", [
    "openai", "openai-reasoning", "gemini", "vllm", "qwen3", "openrouter"])
def test_a_dialect_without_demands_returns_the_chat_itself(family):
  messages = chat("assistant: a", "system: s", "system: t", "assistant: b", "user: u", "user: v")
  assert accepted_messages(family, messages) is messages


@pytest.mark.parametrize(("family", "messages", "fitted"), [
    ("gemma", ["system: s", "user: u"], ["user: s\n\nu"]),
    ("gemma", ["system: s", "system: t", "user: u"], ["user: s\n\nt\n\nu"]),
    ("gemma", ["user: u", "system: s", "user: v"], ["user: u\n\ns\n\nv"]),
    ("gemma", ["user: u", "assistant: a", "system: s"], ["user: u", "assistant: a", "user: s"]),
    ("gemma", ["user: u", "assistant: a", "system: s", "assistant: b"],
     ["user: u", "assistant: a", "user: s", "assistant: b"]),
    ("gemma", ["system: s", "assistant: a"], ["user: s", "assistant: a"]),
    ("gemma", ["assistant: a", "user: u"], [f"user: {OPENING}", "assistant: a", "user: u"]),
    ("gemma", ["user: u", "user: v", "assistant: a", "assistant: b"],
     ["user: u\n\nv", "assistant: a\n\nb"]),
    ("gemma", ["system: ", "user: u"], ["user: u"]),
    ("gemma", ["system: s", "user: "], ["user: s"]),
    ("gemma", ["system: "], []),
    ("gemma", [], []),
    ("mistral", ["system: s", "user: u"], ["system: s", "user: u"]),
    ("mistral", ["system: s", "system: t", "user: u"], ["system: s\n\nt", "user: u"]),
    ("mistral", ["system: s", "assistant: a"],
     ["system: s", f"user: {OPENING}", "assistant: a"]),
    ("mistral", ["system: s", "user: u", "system: t", "user: v"],
     ["system: s", "user: u\n\nt\n\nv"]),
    ("mistral", ["user: u", "assistant: a", "system: t", "user: v"],
     ["user: u", "assistant: a", "user: t\n\nv"]),
    ("mistral", ["system: s"], ["user: s"]),
    ("anthropic", ["user: u", "user: v"], ["user: u\n\nv"]),
    ("anthropic", ["system: s", "user: u"], ["system: s", "user: u"]),
    ("deepseek-r1", ["system: s", "user: u", "user: v"], ["user: s\n\nu", "user: v"]),
    ("deepseek-r1", ["system: s", "assistant: a", "system: t"],
     ["user: s", "assistant: a", "user: t"]),
    ("openrouter-gemma", ["system: s", "user: u", "user: v"], ["user: s\n\nu\n\nv"]),
    ("openrouter-deepseek-r1", ["system: s", "user: u"], ["user: s\n\nu"]),
])
def test_chats_are_fitted_to_what_a_family_accepts(family, messages, fitted):
  assert flat(accepted_messages(family, chat(*messages))) == fitted


ROLES = st.lists(st.sampled_from(("system", "user", "assistant")), max_size=7)


def numbered(roles):
  return [{"role": role, "content": f"<{index}>"} for index, role in enumerate(roles)]


@pytest.mark.parametrize("family", FAMILIES)
@given(roles=ROLES)
def test_no_text_is_lost_or_moved_and_the_roles_are_those_that_the_family_accepts(family, roles):
  spoken, messages = DIALECTS[family], numbered(roles)
  fitted = accepted_messages(spoken, messages)
  text = "\n\n".join(turn["content"] for turn in fitted)
  assert text.replace(f"{OPENING}\n\n", "") == "\n\n".join(turn["content"] for turn in messages)
  assert [turn["role"] for turn in fitted].count("assistant") <= roles.count("assistant")
  after = [turn["role"] for turn in fitted]
  if not spoken.system:
    assert "system" not in after
  if spoken.alternates:
    turns = after[1:] if after[:1] == ["system"] else after
    assert turns == [role for role, _ in zip(
        itertools.cycle(("user", "assistant")), turns, strict=False)]
    assert bool(turns) == bool(roles)
  assert accepted_messages(spoken, fitted) == fitted
  assert messages == numbered(roles)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("context", [message_context, inlined_context])
@pytest.mark.parametrize("count", range(4))
def test_what_the_executor_shows_is_accepted_by_every_family_as_it_is(family, context, count):
  messages = context("Q", [(f"s{i}", "" if i == 1 else f"a{i}") for i in range(count)], "own")
  assert accepted_messages(family, messages) == messages
