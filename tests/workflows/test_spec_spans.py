import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from conductor_jax.workers.offer import Offer
from conductor_jax.workflows.spec import SpecFormat
from conductor_jax.workflows.workflow import ParsedPlan, Reference, Step, Workflow
from conductor_jax.workflows.yaml_nodes import plain_value, read_yaml
from tests.workflows.drawn_specs import SPEC, drawn_spec

ALL = Offer((0, 1, 2, 3, 4))
BEFORE = "Zwei genügen 🧮.\n\n"
TEAM = """\
agents:
  - name: finder
    role: researcher
    duty: Look it up.
    capacity: small
    references: []
  - name: 'it''s me'
    role: solver
    duty: |
      First this.

      Then that.
    capacity: "medium"
    references: [finder]
  - {name: last, role: solver, duty: "Say \\"so\\".", capacity: large,
     references: [ "it's me", finder ]}
"""
HEADER = re.compile(r"([|>][-+]?)[^\r\n]*(?:\r\n|\r|\n)( *)\Z")


def spans_of(completion):
  plan = SPEC.parse(completion, ALL)
  assert isinstance(plan, ParsedPlan), plan
  return plan


def read_back(completion, span):
  """What the piece of a text means in the style in which it stands there."""
  start, end = span
  piece = completion[start:end]
  header = HEADER.search(completion, max(0, start - 60), start)
  if header:
    return plain_value(read_yaml(f"key: {header[1]}\n{header[2]}{piece}\n"))["key"]
  around = completion[start - 1:start] + completion[end:end + 1]
  if around in ("''", '""'):
    return plain_value(read_yaml(f"key: {around[0]}{piece}{around[1]}"))["key"]
  if piece.startswith("- "):
    # A list's dashes stand below one another.
    first = max(completion.rfind("\n", 0, start), completion.rfind("\r", 0, start)) + 1
    return plain_value(read_yaml(" " * (start - first) + piece))
  return plain_value(read_yaml(f"key: {piece}"))["key"]


def test_spans_cut_the_fields_out_of_the_completion():
  completion = BEFORE + TEAM
  plan = spans_of(completion)
  shown = {key: completion[start:end] for key, (start, end) in plan.spans.items()}
  assert shown == {
      (0, "name"): "finder", (0, "role"): "researcher", (0, "duty"): "Look it up.",
      (0, "capacity"): "small", (0, "references"): "[]",
      (1, "name"): "it''s me", (1, "role"): "solver",
      (1, "duty"): "First this.\n\n      Then that.", (1, "capacity"): "medium",
      (1, "references"): "[finder]",
      (2, "name"): "last", (2, "role"): "solver", (2, "duty"): 'Say \\"so\\".',
      (2, "capacity"): "large", (2, "references"): "[ \"it's me\", finder ]"}


def test_references_stand_as_they_are_written_and_what_is_seen_ascends():
  completion = BEFORE + TEAM
  plan = spans_of(completion)
  assert plan.references == (
      Reference(1, (0,), (completion.index("[finder]") + 1, completion.index("[finder]") + 7)),
      Reference(2, (1,), (completion.index("it's"), completion.index("it's") + 7)),
      Reference(2, (0,), (completion.index("finder ]"), completion.index(" ]}"))))
  assert [completion[slice(*each.span)] for each in plan.references] == [
      "finder", "it's me", "finder"]
  assert [step.sees for step in plan.workflow.steps] == [(), (0,), (0, 1)]


@pytest.mark.parametrize("options", [
    {}, {"roles": False}, {"capacities": False}, {"references": False}],
    ids=["all", "no roles", "no capacities", "no references"])
def test_specifications_in_any_style_are_read_and_placed(options):
  format = SpecFormat(workers=SPEC.workers, **options)
  count = 200 if options else 1000
  kinds = Counter()
  for seed in range(count):
    completion, agents, workflow = drawn_spec(np.random.default_rng([seed, len(options)]), format)
    plan = format.parse(completion, ALL)
    assert isinstance(plan, ParsedPlan), (plan, completion)
    assert plan.workflow == workflow, completion
    expected = {(number, field): getattr(agent, field)
                for number, agent in enumerate(agents) for field in format.fields}
    assert plan.spans.keys() == expected.keys()
    for key, value in expected.items():
      start, end = plan.spans[key]
      is_equal = completion[start:end] == value
      kinds[key[1], is_equal] += 1
      if is_equal:
        continue
      found = read_back(completion, (start, end))
      if key[1] == "references":
        assert tuple(found) == value, completion
      else:
        # How a block ends is in its header, which is no part of the text.
        assert found.strip() == value.strip(), completion
    named = [completion[slice(*each.span)] and read_back(completion, each.span)
             for each in plan.references]
    assert named == [name for agent in agents for name in agent.references]
    assert [each.opens for each in plan.references] == [
        (next(i for i, agent in enumerate(agents) if agent.name == name),) for name in named]
  # Every field is met both as it is and in a style that must be read.
  assert min(kinds[field, kind] for field in format.fields if field != "references"
             for kind in (True, False)) > count / 20


class TestRewriting:

  def rewritten(self, completion, family, step, place=0, format=SPEC):
    plan = format.parse(completion, ALL)
    (family, span, mutated), = [
        each for each in mutations(plan, format, step)
        if each[0] == family and (family != "dependency" or each[1] == [
            ref.span for ref in plan.references if ref.step == step][place])]
    return format.rewritten(completion, plan, span, family, mutated, ALL)

  @pytest.mark.parametrize("listed, place, left", [
      ("[a, b, c]", 0, "[b, c]"), ("[a, b, c]", 1, "[a, c]"), ("[a, b, c]", 2, "[a, b]"),
      ("[ 'a' , \"b\" ]", 0, '[ "b" ]'), ("[ 'a' , \"b\" ]", 1, "[ 'a' ]"), ("[ a, ]", 0, "[]"),
      ("[a,\n     b,\n    ]  # c", 1, "[a,\n    ]  # c"),
      ("[a, # one\n     b # two\n    ]", 0, "[b # two\n    ]"),
      ("\n      - a\n      - b", 0, "\n      - b"),
      ("\n    - a # x\n    - 'b' # y\n    # z\n    - c", 1, "\n    - a # x\n    # z\n    - c"),
      ("\n    - a # x\n    # - z\n    -\n      b\n    - c", 1,
       "\n    - a # x\n    # - z\n    - c"),
      ("\n    - |-\n      a\n    - b", 0, "\n    - b"),
      ("\n    -  a  # x", 0, "\n      []  # x"), ("\n      - \"a\"", 0, "\n        []"),
  ])
  @pytest.mark.parametrize("broken", ["\n", "\r\n"])
  def test_a_reference_goes_with_its_comma_or_its_line(self, listed, place, left, broken):
    head = "agents:\n" + "".join(
        f"  - {{name: {name}, role: solver, duty: d, capacity: small, references: []}}\n"
        for name in "abc") + "  - name: e\n    references:"
    space = "" if listed.startswith("\n") else " "
    tail = "\n    role: solver\n    duty: d\n    capacity: small\n"
    completion = f"{head}{space}{listed}{tail}".replace("\n", broken)
    expected = f"{head}{space}{left}{tail}".replace("\n", broken)
    assert self.rewritten(completion, "dependency", 3, place) == expected

  def test_a_reference_on_the_last_line_goes_too(self):
    left = TEAM[:TEAM.index("  - {name: last")] + (
        "  - name: last\n    role: solver\n    duty: d\n    capacity: large\n"
        "    references:\n    - finder\n")
    assert self.rewritten(f"{left}    - it's me", "dependency", 2, 1) == left

  def test_a_capacity_becomes_the_name_of_the_next(self):
    assert self.rewritten(TEAM, "capacity", 1) == TEAM.replace('"medium"', '"small"')
    assert self.rewritten(TEAM, "capacity", 2) == TEAM.replace(": large", ": medium")

  def test_a_duty_becomes_the_words_of_the_role(self):
    words = "Answer the question."
    assert self.rewritten(TEAM, "duty", 1) == TEAM.replace(
        "First this.\n\n      Then that.", words)
    assert self.rewritten(TEAM, "duty", 2) == TEAM.replace('Say \\"so\\".', words)

  def test_words_with_a_comma_stand_in_quotes_within_braces(self):
    completion = TEAM.replace('solver, duty: "Say \\"so\\"."', "checker, duty: do it")
    assert 'duty: "Check the answers so far, and correct what is wrong.",' in self.rewritten(
        completion, "duty", 2)

  def test_a_duty_that_is_the_words_of_the_role_already_is_left(self):
    completion = TEAM.replace("Say \\\"so\\\".", "Answer the question.")
    assert self.rewritten(completion, "duty", 2) is None

  def test_without_roles_a_duty_becomes_the_plain_one(self):
    format = SpecFormat(workers=SPEC.workers, roles=False)
    completion = "agents: [{name: a, duty: b, capacity: small, references: []}]"
    assert self.rewritten(completion, "duty", 0, format=format) == completion.replace(
        "duty: b", "duty: Answer the question.")

  def test_a_plan_that_the_text_cannot_say_is_none(self):
    plan = spans_of(TEAM)
    other = swapped(plan.workflow, 1, replace(plan.workflow.steps[1], subtask="Dance."))
    assert SPEC.rewritten(TEAM, plan, plan.spans[1, "capacity"], "capacity", other, ALL) is None

  def test_every_mutation_of_a_specification_in_any_style_can_be_said(self):
    for seed in range(60):
      completion, _, workflow = drawn_spec(np.random.default_rng([seed, 9]))
      plan = spans_of(completion)
      for step in range(len(workflow.steps)):
        for family, span, mutated in mutations(plan, SPEC, step):
          text = SPEC.rewritten(completion, plan, span, family, mutated, ALL)
          found = spans_of(text).workflow
          first, last = plan.spans[step, "references"] if family == "dependency" else span
          if family == "duty":
            bare = plan.bare[step]
            assert found == swapped(mutated, step, replace(
                mutated.steps[step], subtask=f"{bare} {bare}"))
          else:
            assert found == mutated
          if family == "dependency" and completion[first] == "-":
            # A line may go from its beginning to its end.
            first = first - len(re.search(" *\\Z", completion[:first])[0])
            last = re.compile("\r\n|\r|\n|\\Z").search(completion, last).end()
          assert text.startswith(completion[:first]) and text.endswith(completion[last:])


def swapped(workflow: Workflow, index: int, step: Step) -> Workflow:
  return Workflow((*workflow.steps[:index], step, *workflow.steps[index + 1:]))


def mutations(plan, format, index):
  """Family, span and workflow of what may be taken back of a step."""
  step, workflow = plan.workflow.steps[index], plan.workflow
  for reference in plan.references:
    if reference.step == index:
      sees = tuple(earlier for earlier in step.sees if earlier not in reference.opens)
      yield "dependency", reference.span, swapped(workflow, index, replace(step, sees=sees))
  yield "duty", plan.spans[index, "duty"], swapped(
      workflow, index, replace(step, subtask=plan.bare[index]))
  lesser = format.lesser(step.worker, None, ALL)
  if lesser is not None:
    yield "capacity", plan.spans[index, "capacity"], swapped(
        workflow, index, replace(step, worker=lesser))
