import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from conductor_jax.workers.offer import Offer
from conductor_jax.workflows.format import Example
from conductor_jax.workflows.roles import ROLES
from conductor_jax.workflows.spec import SpecFormat
from conductor_jax.workflows.spec_schema import FIELDS, Agent, specification_schema
from conductor_jax.workflows.spec_text import render_spec
from conductor_jax.workflows.workflow import PLAIN_SUBTASK, ParsedPlan, ParseFailure, Step, Workflow
from tests.workflows.drawn_specs import SPEC, drawn_spec

# Ids in the pool: 4 is small, 0 is medium, 2 is large.
ALL = Offer((0, 1, 2, 3, 4))
TWO = """\
agents:
  - name: finder
    role: researcher
    duty: Look it up.
    capacity: small
    references: []
  - name: solver
    role: calculator
    duty: Add 7 to it.
    capacity: large
    references: [finder]
"""
STEPS = (Step(4, f"{ROLES['researcher']} Look it up."),
         Step(2, f"{ROLES['calculator']} Add 7 to it.", (0,)))


def steps(completion, format=SPEC, offer=ALL):
  result = format.parse(completion, offer)
  assert isinstance(result, ParsedPlan), result
  return result.workflow.steps


def failure(completion, format=SPEC, offer=ALL):
  result = format.parse(completion, offer)
  assert isinstance(result, ParseFailure), result
  return result


def changed(old, new):
  assert TWO.count(old) == 1
  return TWO.replace(old, new)


def team(count):
  return "agents:\n" + "".join(
      f"- {{name: a{i}, role: solver, duty: d, capacity: small, references: []}}\n"
      for i in range(count))


def place(text, reason):
  """The character that a reason names by its line and column."""
  line, column = map(int, re.match(r"line (\d+), column (\d+): ", reason).groups())
  starts = [0, *(found.end() for found in re.finditer("\r\n|\r|\n", text))]
  return starts[line - 1] + column - 1


class TestWhichTextIsTheDocument:

  @pytest.mark.parametrize("completion", [
      TWO, f"Two will do.\n\n{TWO}", f"\ufeff{TWO}", f"---\n{TWO}", f"{TWO}...\n", f"x\n---\n{TWO}",
      TWO.replace("\n", "\r\n"), TWO.replace("\n", "\r"),
      f"```\n{TWO}```", f"```yaml\n{TWO}```\nDone.", f"So:\n```YAML \n{TWO}\n```\n",
      f"```yml\n{TWO}",
      f"```\nagents: []\n```\n```yaml\n---\n{TWO}...\n```", f"```yaml\nx\n```yaml\n{TWO}```",
      f"```python\nx = 1\n```\n{TWO}", f"```json\n[]\n```\n```\n{TWO}```",
      f"agents: two of them\n{TWO}", f"{TWO}---\n{TWO}",
      f"<think>{TWO}</think>\n{TWO}", f"<think>\n```\n</think>{TWO}", f"x</think>{TWO}",
      f"</think><think>a</think>\n{TWO}", f"```\n{TWO}```\n<think>\n```\nx\n```"])
  def test_is_found(self, completion):
    assert steps(completion) == STEPS

  @pytest.mark.parametrize("completion, reason", [
      ("", "line 1, column 1: there is no line in the text that begins with agents:"),
      ("I give up.\n", "line 2, column 1: there is no line in the text that begins with agents:"),
      (f" {TWO}", "line 12, column 1: there is no line in the text that begins with agents:"),
      ("<think>\nagents: []", "line 1, column 1: the text ends inside <think>"),
      ("a <think> b </think>\n<think> c", "line 2, column 1: the text ends inside <think>"),
      (f"{TWO}</think>\nDone.",
       "line 13, column 6: there is no line after </think> that begins with agents:"),
      (f"```\n```\n{TWO}", "line 2, column 1: the document is empty"),
      (f"{TWO}\nThat is all.", 'line 13, column 1: "That" must be a key with a colon after it'),
      (f"{TWO}...\nx: y\n", "line 13, column 1: two documents, but one is allowed"),
      (f"{TWO}---\n", "line 12, column 1: two documents, but one is allowed"),
      (f"```\n{TWO}---\n{TWO}```", "line 13, column 1: two documents, but one is allowed"),
      (f"x\n{TWO}{'#' * 16384}", f"line 13, column {16385 - len(TWO)}: the document has "
       f"{16384 + len(TWO)} characters, allowed are 16384")])
  def test_is_not_found_or_is_more_than_one(self, completion, reason):
    found = failure(completion)
    assert (found.reason, found.position) == (reason, place(completion, reason))

  def test_a_long_text_before_it_is_no_fault(self):
    assert steps("<think>" + "x\n" * 200_000 + "</think>\n" + TWO) == STEPS


AGENT = "an agent has name, role, duty, capacity, references"
MAP = "an agent must be a map of name, role, duty, capacity, references"
LIST = "references must be a list of names, or [] for none"
ONE_OF = "must be one of small, medium, large"


@pytest.mark.parametrize("old, new, reason", [
    ("role: researcher", "role: cook",
     f'line 3, column 11: role "cook" must be one of {", ".join(ROLES)}'),
    ("role: researcher", "role:", f'line 3, column 10: role "" must be one of {", ".join(ROLES)}'),
    ("small", "huge", f'line 5, column 15: capacity "huge" {ONE_OF}'),
    ("small", "Small", f'line 5, column 15: capacity "Small" {ONE_OF}'),
    ("small", "[small]", f"line 5, column 15: capacity {ONE_OF}, got a list"),
    ("small", "", f'line 5, column 14: capacity "" {ONE_OF}'),
    ("name: finder", "name: solver", 'line 7, column 11: two agents are called "solver"'),
    ("name: finder", "name: ''", "line 2, column 11: name is blank"),
    ("name: finder", "name: ~", "line 2, column 11: name is blank"),
    ("name: finder", "name: null", "line 2, column 11: name is blank"),
    ("name: finder", r'name: "a\nb"', "line 2, column 11: name has a line break"),
    ("name: finder", r'name: "a\u2028b"', "line 2, column 11: name has a line break"),
    ("name: finder", f"name: {'🧮' * 65}",
     "line 2, column 11: name has 65 characters, allowed are 64"),
    ("name: finder", "name: {a: b}", "line 2, column 11: name must be text, got a map"),
    ("Look it up.", r'" \t\u2003 "', "line 4, column 11: duty is blank"),
    ("Look it up.", "|", "line 4, column 11: duty is blank"),
    ("Look it up.", "", "line 4, column 10: duty is blank"),
    ("Look it up.", "[Look it up.]", "line 4, column 11: duty must be text, got a list"),
    ("Look it up.", "Look: it up.", "line 4, column 15: a colon too many: put the text in quotes, "
     "or align the line with its neighbours"),
    ("    duty: Look it up.\n", "", "line 2, column 5: this agent has no duty"),
    ("    references: []\n", "", "line 2, column 5: this agent has no references"),
    ("duty: Look it up.", "dutty: Look it up.", "line 2, column 5: this agent has no duty"),
    ("references: []", "1: x\n    references: []",
     f'line 6, column 5: unknown key "1": {AGENT}'),
    ("references: []", "null: x\n    references: []",
     f'line 6, column 5: unknown key "": {AGENT}'),
    ("references: []", "[x]: y\n    references: []",
     "line 6, column 5: a key must be text, and no list or map"),
    ("references: []", "role: solver\n    references: []",
     'line 6, column 5: the key "role" is there twice'),
    ("references: []", "references: [a, finder]",
     'line 6, column 18: no agent is called "a": there is no earlier one'),
    ("references: []", "references: [finder]",
     'line 6, column 18: may refer to earlier agents only: "finder" is the agent itself'),
    ("references: []", "references: [solver]",
     'line 6, column 18: may refer to earlier agents only: "solver" comes later'),
    ("[finder]", "[finder, 'finder']", 'line 11, column 26: "finder" is referred to twice'),
    ("[finder]", "\n    - finder\n    - Finder",
     'line 13, column 7: no agent is called "Finder": the earlier ones are "finder"'),
    ("[finder]", "finder", f'line 11, column 17: {LIST}, got "finder"'),
    ("[finder]", "", f"line 11, column 16: {LIST}, got nothing"),
    ("[finder]", "{finder}", f"line 11, column 17: {LIST}, got a map"),
    ("[finder]", "[[finder]]", "line 11, column 18: a reference must be a name, got a list"),
    ("[finder]", "[finder: x]", "line 11, column 18: a reference must be a name, got a map"),
    ("[finder]", "[null]",
     'line 11, column 18: no agent is called "": the earlier ones are "finder"'),
    ("    duty: Look", "\tduty: Look",
     "line 4, column 1: a tab may stand in quotes only: use spaces"),
    ("Look it up.", "*look", "line 4, column 11: an alias (*) is not allowed: put the text in "
     "quotes"),
    ("Look it up.", "!!str x",
     "line 4, column 11: a tag (!) is not allowed: put the text in quotes"),
    ("agents:\n", "Plan 🧮:\r\nagents:\n  - x\n",
     f'line 3, column 5: {MAP}, got "x"'),
])
def test_a_faulty_agent_has_a_reason_and_a_place(old, new, reason):
  completion = changed(old, new)
  found = failure(completion)
  assert (found.reason, found.position) == (reason, place(completion, reason))


@pytest.mark.parametrize("completion, reason", [
    ("agents: []", "line 1, column 9: there are no agents: write one at least"),
    ("agents:", "line 1, column 8: agents must be a list, got nothing"),
    ("agents: two", 'line 1, column 9: agents must be a list, got "two"'),
    ("agents:\n  finder:\n    role: solver",
     "line 2, column 3: agents must be a list, got a map"),
    ("agents:\n- solver", f'line 2, column 3: {MAP}, got "solver"'),
    ("agents:\n- [solver]", f"line 2, column 3: {MAP}, got a list"),
    ("agents:\n-", f"line 2, column 2: {MAP}, got nothing"),
    (f"{TWO}edges: []\n", 'line 12, column 1: unknown key "edges": the document has agents'),
    ("```\nteam: []\nagents: []\n```",
     'line 2, column 1: unknown key "team": the document has agents'),
    ("```\n{}\n```", "line 2, column 1: the key agents is missing"),
    ("```\n- agents\n```",
     "line 2, column 1: the document must be a map with the key agents, got a list"),
    ("```\nagents\n```",
     'line 2, column 1: the document must be a map with the key agents, got "agents"'),
    (team(7), "line 8, column 3: there are 7 agents, allowed are 1 to 6"),
    (team(200), "line 8, column 3: there are 200 agents, allowed are 1 to 6"),
    ("agents: &a\n- *a", "line 1, column 9: an anchor (&) is not allowed: put the text in quotes"),
    ("agents: " + "[" * 10000,
     "line 1, column 17: lists and maps stand more than 8 deep inside one another"),
])
def test_a_faulty_document_has_a_reason_and_a_place(completion, reason):
  found = failure(completion)
  assert (found.reason, found.position) == (reason, place(completion, reason))


def test_of_several_faults_the_first_in_the_text_is_named():
  both = changed("role: researcher", "role: cook").replace("name: solver", "name: ''")
  assert failure(both).reason.startswith("line 3, column 11: role")
  both = changed("[finder]", "[x]").replace("capacity: large", "capacity: small")
  small_is_gone = failure(both, offer=Offer((0, 2)))
  assert small_is_gone.reason == (
      'line 5, column 15: capacity "small" is not on offer: choose one of medium, large')


def test_the_schema_is_a_schema_and_holds_of_plain_documents():
  schema = specification_schema(FIELDS, 1)
  Draft202012Validator.check_schema(schema)
  validator = Draft202012Validator(schema)
  agent = {"name": "a", "role": "solver", "duty": "d", "capacity": "small", "references": []}
  assert validator.is_valid({"agents": [agent]})
  assert not validator.is_valid({"agents": [agent, agent]})
  assert not validator.is_valid({"agents": [agent | {"role": "cook"}]})


class TestOptions:

  def test_without_roles_a_duty_stands_alone(self):
    format = SpecFormat(workers=SPEC.workers, roles=False)
    text = re.sub("    role: .*\n", "", TWO)
    plan = format.parse(text, ALL)
    assert [step.subtask for step in plan.workflow.steps] == ["Look it up.", "Add 7 to it."]
    assert plan.bare == (PLAIN_SUBTASK, PLAIN_SUBTASK)
    assert (0, "role") not in plan.spans
    assert failure(TWO, format).reason == (
        'line 3, column 5: unknown key "role": an agent has name, duty, capacity, references')

  def test_without_capacities_all_have_the_medium_worker_or_the_largest(self):
    format = SpecFormat(workers=SPEC.workers, capacities=False)
    text = re.sub("    capacity: .*\n", "", TWO)
    for offered, worker in ((0, 2, 4), 0), ((2, 4), 2), ((3, 4), 4):
      assert [step.worker for step in steps(text, format, Offer(offered))] == [worker] * 2
    assert 'unknown key "capacity"' in failure(TWO, format).reason
    assert format.offered((0, 2, 4)) == "Every agent is the same model."

  def test_without_references_all_earlier_ones_are_seen(self):
    format = SpecFormat(workers=SPEC.workers, references=False)
    text = re.sub("    references: .*\n", "", TWO)
    text += "\n".join(text.splitlines()[1:5]).replace("finder", "last")
    plan = format.parse(text, ALL)
    assert [step.sees for step in plan.workflow.steps] == [(), (0,), (0, 1)]
    assert plan.references == ()
    assert format.access == "binary" and SPEC.access == "positions"
    assert 'unknown key "references"' in failure(TWO, format).reason

  def test_max_steps_bounds_the_agents(self):
    assert failure(TWO, SpecFormat(max_steps=1, workers=SPEC.workers)).reason == (
        "line 7, column 5: there are 2 agents, allowed are 1 to 1")

  @pytest.mark.parametrize("workers", [(None, None, None), (0, 0, 1)])
  def test_each_capacity_has_a_worker_of_its_own(self, workers):
    with pytest.raises(ValueError, match="a worker of its own"):
      SpecFormat(workers=workers)

  def test_a_capacity_without_a_worker_is_not_on_offer(self):
    format = SpecFormat(workers=(None, 0, 2))
    assert failure(TWO, format).reason == (
        'line 5, column 15: capacity "small" is not on offer: choose one of medium, large')
    assert format.offered((0, 1, 2)) == "Available capacities: medium, large"
    assert "capacity: medium or large\n" in format.instructions(later=False)
    assert format.example_models(EXAMPLE, (0, 2)) == (0, 2)

  def test_an_offer_without_any_worker_of_the_format_is_an_error(self):
    with pytest.raises(ValueError, match=r"\(4, 0, 2\), is on offer, only \[1, 3\]"):
      SPEC.parse(TWO, Offer((1, 3)))

  def test_there_is_one_round(self):
    with pytest.raises(ValueError, match="one round"):
      SPEC.instructions(later=True)
    with pytest.raises(ValueError, match="one round"):
      SPEC.parse(TWO, ALL, previous=True)

  def test_the_next_lower_capacity_on_offer(self):
    assert [SPEC.lesser(worker, None, ALL) for worker in (4, 0, 2)] == [None, 4, 0]
    assert SPEC.lesser(2, None, Offer((2, 4))) == 4
    assert SPEC.lesser(2, None, Offer((1, 2))) is None

  def test_instructions_name_what_the_format_has(self):
    text = SPEC.instructions(later=False)
    assert all(f"\n{role}: {words}\n" in text for role, words in ROLES.items())
    assert all(f"{field}: " in text for field in FIELDS) and "6 agents at most" in text
    bare = SpecFormat(workers=(4, 0, 2), roles=False, capacities=False, references=False)
    text = bare.instructions(later=False)
    assert not any(word in text for word in ("role", "capacity", "references"))


EXAMPLE = Example("Q?", range(5), "Think.", Workflow((
    Step(4, "Look it up."), Step(0, "It's: x", (0,)), Step(2, "Add\n7.", (0, 1)))))


class TestWritten:

  def test_is_the_thought_and_the_canonical_document(self):
    example = Example("Q?", range(5), "Think.", EXAMPLE.workflow,
                      roles=("researcher", "solver", "solver"))
    assert SPEC.written(example) == """\
Think.
agents:
  - name: researcher
    role: researcher
    duty: Look it up.
    capacity: small
    references: []
  - name: solver
    role: solver
    duty: "It's: x"
    capacity: medium
    references: [researcher]
  - name: solver-2
    role: solver
    duty: "Add\\n7."
    capacity: large
    references: [researcher, solver]"""

  def test_what_the_format_has_no_field_for_is_left_out(self):
    format = SpecFormat(workers=(4, 0, 2), roles=False, capacities=False, references=False)
    assert format.written(EXAMPLE).splitlines()[1:5] == [
        "agents:", "  - name: agent-1", "    duty: Look it up.", "  - name: agent-2"]

  def test_other_workers_stand_for_capacities_in_order(self):
    steps = tuple(Step(worker, "x") for worker in range(4))
    example = Example("Q?", range(4), "", Workflow(steps))
    capacities = re.findall("capacity: (.*)", SpecFormat(workers=(8, 9, 7)).written(example))
    assert capacities == ["small", "medium", "large", "large"]
    capacities = re.findall("capacity: (.*)", SpecFormat(workers=(8, None, 7)).written(example))
    assert capacities == ["small", "large", "large", "large"]

  @pytest.mark.parametrize("subtask, thought, options, reason", [
      (" ", "", {}, "duty is blank"), ("\ud800", "", {}, "U\\+D800 cannot stand here"),
      ("x" * 17000, "", {}, "allowed are 16384"),
      ("x", "", {"roles": ("cook",)}, 'role "cook" must be one of'),
      ("x", "", {"roles": ("solver",) * 2}, "has 1 steps, but 2 roles"),
      ("x", "", {"previous": "y"}, "one round"), ("x", "```\nx", {}, "a plan of its own"),
      ("x", "<think> x", {}, "the text ends inside <think>")])
  def test_what_cannot_be_written_is_an_error(self, subtask, thought, options, reason):
    workflow = Workflow((Step(4, subtask),))
    with pytest.raises(ValueError, match=reason):
      SPEC.written(Example("Q?", range(5), thought, workflow, **options))

  @pytest.mark.parametrize("agent", [
      Agent("a", "d"), Agent("a", "d", "solver", "huge"), Agent("a\nb", "d", "solver", "small"),
      Agent("a", "d", "solver", "small", ("b",)),
      Agent("a", "d", "solver\n    capacity: small", "x"),
      Agent("a", "d", "solver", "small\n    references: []\n  - name: b")])
  def test_agents_that_are_none_are_an_error(self, agent):
    with pytest.raises(ValueError, match="cannot be specified"):
      render_spec([agent], FIELDS, 2)

  def test_a_field_that_is_not_written_is_an_error(self):
    with pytest.raises(ValueError, match="agents of name, duty cannot say all of"):
      render_spec([Agent("a", "d", "solver")], ("name", "duty"), 2)

  def test_more_steps_than_allowed_are_an_error(self):
    with pytest.raises(ValueError, match="there are 3 agents, allowed are 1 to 2"):
      SpecFormat(max_steps=2, workers=(4, 0, 2)).written(EXAMPLE)


TEXTS = st.one_of(
    st.text(min_size=1),
    st.text(alphabet="abnt:-?[]{},#&*!|>'\"%@`~\\ \n\t<>\u2028\x85\ufeff🧮\u0301", min_size=1),
    st.sampled_from(["\nabla", "\times", "<think>", "</think>", "null", "~", "yes", "1.0", "```",
                     "agents:", "---", "...", "a: b", "a #b", "''", '"', "\\", " a ", "[]", "%"]))
NAMES = TEXTS.filter(lambda text: text.strip() and len(text) <= 64 and len(
    text.splitlines()) == 1 and text.splitlines()[0] == text)


@settings(max_examples=300)
@given(st.data(), st.integers(1, 5), st.sets(st.sampled_from(FIELDS[1:2] + FIELDS[3:])))
def test_what_is_rendered_parses_back(data, count, left_out):
  fields = tuple(field for field in FIELDS if field not in left_out)
  names = data.draw(st.lists(NAMES, min_size=count, max_size=count, unique=True))
  agents = [Agent(
      name, data.draw(TEXTS.filter(str.strip)),
      data.draw(st.sampled_from(list(ROLES))) if "role" in fields else None,
      data.draw(st.sampled_from(("small", "medium", "large"))) if "capacity" in fields else None,
      tuple(data.draw(st.permutations(names[:place]))[:data.draw(st.integers(0, place))])
      if "references" in fields else ()) for place, name in enumerate(names)]
  text = render_spec(agents, fields, count)
  format = SpecFormat(
      workers=(4, 0, 2), max_steps=count, roles="role" in fields, capacities="capacity" in fields,
      references="references" in fields)
  plan = format.parse(text, ALL)
  for place, (agent, step) in enumerate(zip(agents, plan.workflow.steps, strict=True)):
    assert step.subtask == (f"{ROLES[agent.role]} " if agent.role else "") + agent.duty.strip()
    assert step.worker == {"small": 4, "medium": 0, "large": 2, None: 0}[agent.capacity]
    seen = map(names.index, agent.references) if format.references else range(place)
    assert step.sees == tuple(sorted(seen))


@settings(max_examples=300)
@given(st.one_of(st.text(), st.text(alphabet="agents: \n-[]{}'\"`<think>/|>#&*!?%\\\t\r🧮\x85")),
       st.sampled_from(["", "agents:", "agents:\n  - ", "```\n", TWO]), st.randoms())
@example("\\UFFFFFFFF\"", "agents: \"", None)
def test_any_text_is_a_plan_or_a_failure_with_a_place(text, before, random):
  completion = before + text
  if random is not None and random.random() < 0.5:
    completion, _, _ = drawn_spec(np.random.default_rng(random.randrange(1000)))
    place = random.randrange(len(completion))
    completion = completion[:place] + text + completion[place + random.randrange(3):]
  result = SPEC.parse(completion, ALL)
  if isinstance(result, ParseFailure):
    assert 0 <= result.position <= len(completion)
    assert result.reason.startswith("line ") and "\n" not in result.reason
  else:
    assert all(0 <= start <= end <= len(completion) for start, end in result.spans.values())
