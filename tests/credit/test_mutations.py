"""Plans without one of their fields."""

import numpy as np
import pytest

from conductor_jax.credit.mutations import Mutation, mutations
from conductor_jax.workers.offer import Offer
from conductor_jax.workers.pool import Pool, WorkerSpec
from conductor_jax.workflows.lists import ListFormat
from conductor_jax.workflows.roles import ROLES
from conductor_jax.workflows.spec import SpecFormat
from conductor_jax.workflows.workflow import PLAIN_SUBTASK, ParsedPlan, Step, Workflow
from tests.workflows.drawn_specs import drawn_spec

# By rising price: cheap, middle, dear; two cost the same.
PRICES = (1.0, 4.0, 0.5, 1.0)
POOL = Pool(tuple(WorkerSpec(f"w{i}", "http://127.0.0.1:1/v1", f"w{i}", price_in=price)
                  for i, price in enumerate(PRICES)))
ALL = Offer((0, 1, 2, 3))
LISTS = ListFormat(access="positions")
SPEC = SpecFormat(workers=(2, 0, 1))

PLAN = """Well.
model_id = [1, 2, 3]
subtasks = ["Find it.", "Answer the question.", 'Check it.']
access_list = [[], [0], ["all"]]"""

TEXT = """This needs two.
agents:
  - name: finder
    role: researcher
    duty: 'Look it up.'
    capacity: large
    references: []
  - name: solver
    role: solver
    duty: Calculate it.
    capacity: small
    references: [finder]
"""


def found(text: str, format, offer: Offer = ALL) -> list[Mutation]:
  plan = format.parse(text, offer)
  assert isinstance(plan, ParsedPlan), plan
  return mutations(plan, format, POOL, offer)


def test_lists_lose_an_open_access_list_a_subtask_of_their_own_or_a_dear_worker():
  steps = (Step(1, "Find it."), Step(2, PLAIN_SUBTASK, (0,)), Step(3, "Check it.", (0, 1)))

  def without(index: int, step: Step) -> Workflow:
    return Workflow((*steps[:index], step, *steps[index + 1:]))

  got = [(each.family, each.step, PLAN[slice(*each.span)], each.workflow)
         for each in found(PLAN, LISTS)]
  assert got == [
      ("dependency", 1, "[0]", without(1, Step(2, PLAIN_SUBTASK))),
      ("dependency", 2, '["all"]', without(2, Step(3, "Check it."))),
      ("duty", 0, "Find it.", without(0, Step(1, PLAIN_SUBTASK))),
      ("duty", 2, "Check it.", without(2, Step(3, PLAIN_SUBTASK, (0, 1)))),
      ("capacity", 0, "1", without(0, Step(0, "Find it."))),
      ("capacity", 2, "3", without(2, Step(2, "Check it.", (0, 1))))]


def test_specifications_lose_one_reference_a_duty_or_a_level():
  first, second = Step(1, f"{ROLES['researcher']} Look it up."), Step(
      2, f"{ROLES['solver']} Calculate it.", (0,))
  got = [(each.family, each.step, TEXT[slice(*each.span)], each.workflow.steps)
         for each in found(TEXT, SPEC)]
  assert got == [
      ("dependency", 1, "finder", (first, Step(2, second.subtask))),
      ("duty", 0, "Look it up.", (Step(1, ROLES["researcher"]), second)),
      ("duty", 1, "Calculate it.", (first, Step(2, ROLES["solver"], (0,)))),
      # Large is worker 1, medium worker 0, and nothing is below small.
      ("capacity", 0, "large", (Step(0, first.subtask), second))]


def test_a_worker_gives_way_to_one_on_offer_only():
  offer = Offer((1, 2, 3))
  capacities = [each for each in found(PLAN, LISTS, offer) if each.family == "capacity"]
  assert [each.workflow.steps[each.step].worker for each in capacities] == [3, 2]
  assert not [each for each in found("model_id = [1]\nsubtasks = ['A']\naccess_list = [[]]", LISTS,
                                     Offer((1,))) if each.family == "capacity"]
  capacities = [each for each in found(TEXT, SPEC, Offer((1, 2))) if each.family == "capacity"]
  assert [each.workflow.steps[each.step].worker for each in capacities] == [2]


def test_plans_of_models_alone_have_their_workers_to_lose():
  text = "model_id = [1, 0]"
  got = found(text, ListFormat(access="none", subtasks=False))
  assert [(each.family, each.step) for each in got] == [("capacity", 0), ("capacity", 1)]


@pytest.mark.parametrize(("changes", "families"), [
    ({"roles": False}, {"dependency", "duty", "capacity"}),
    ({"capacities": False}, {"dependency", "duty"}),
    ({"references": False}, {"duty", "capacity"})])
def test_a_field_that_a_format_lacks_is_not_taken_back(changes, families):
  format = SpecFormat(workers=(2, 0, 1), **changes)
  key = next(iter(changes))
  gone = {"roles": "role", "capacities": "capacity", "references": "references"}[key]
  text = "".join(line for line in TEXT.splitlines(keepends=True) if f"{gone}:" not in line)
  assert {each.family for each in found(text, format)} == families


def test_a_mutation_differs_from_its_plan_in_one_field_of_one_step():
  generator, kinds = np.random.default_rng(3), set()
  fields = {"dependency": "sees", "duty": "subtask", "capacity": "worker"}
  for _ in range(200):
    text, _, _ = drawn_spec(generator, SPEC)
    plan = SPEC.parse(text, ALL)
    for each in mutations(plan, SPEC, POOL, ALL):
      pairs = zip(plan.workflow.steps, each.workflow.steps, strict=True)
      differing = [(index, name) for index, (one, other) in enumerate(pairs)
                   for name in ("worker", "subtask", "sees", "sees_previous")
                   if getattr(one, name) != getattr(other, name)]
      assert differing == [(each.step, fields[each.family])]
      kinds.add(each.family)
  assert kinds == {"dependency", "duty", "capacity"}


class TestRewriting:
  """The text of a mutated plan, for preferences."""

  @pytest.mark.parametrize(("format", "text"), [(LISTS, PLAN), (SPEC, TEXT)])
  def test_the_rewritten_text_says_the_mutated_plan(self, format, text):
    plan = format.parse(text, ALL)
    for each in mutations(plan, format, POOL, ALL):
      rewritten = format.rewritten(text, plan, each.span, each.family, each.workflow, ALL)
      again = format.parse(rewritten, ALL)
      if each.family == "duty" and format is SPEC:
        # A duty cannot be left out: the role's own text takes its place.
        role = each.workflow.steps[each.step].subtask
        assert again.workflow.steps[each.step].subtask == f"{role} {role}"
      else:
        assert again.workflow == each.workflow

  def test_specifications_in_any_style_are_rewritten_or_left_alone(self):
    generator, counts = np.random.default_rng(5), {True: 0, False: 0}
    for _ in range(150):
      text, _, _ = drawn_spec(generator, SPEC)
      plan = SPEC.parse(text, ALL)
      for each in mutations(plan, SPEC, POOL, ALL):
        rewritten = SPEC.rewritten(text, plan, each.span, each.family, each.workflow, ALL)
        counts[rewritten is not None] += 1
        if rewritten is not None and each.family != "duty":
          assert SPEC.parse(rewritten, ALL).workflow == each.workflow
    # Rarely can a field not be changed without its neighbours.
    assert counts[True] > 20 * counts[False]
