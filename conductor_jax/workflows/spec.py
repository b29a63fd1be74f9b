"""Plans as specifications of agents (LEMON, arXiv 2605.14483).

A completion reasons freely, then holds one YAML document:

    agents:
      - name: finder
        role: researcher
        duty: Look it up in the almanac.
        capacity: small
        references: []
      - name: solver
        role: calculator
        duty: Add 7 to what was found.
        capacity: large
        references: [finder]

An agent is asked what its base role always does and then its duty. It sees the answers of the
agents that it refers to, which stand before it, and the last agent's answer is the plan's.
`spec_text` says which text is the document, `spec_schema` what it may hold and `yaml_nodes` how
strictly it is read. Nothing is repaired.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conductor_jax.workers.offer import Offer
from conductor_jax.workers.pool import CAPACITIES, Pool
from conductor_jax.workflows.format import Access, Example, Family
from conductor_jax.workflows.roles import ROLES
from conductor_jax.workflows.spec_prompt import spec_instructions
from conductor_jax.workflows.spec_schema import FIELDS, Agent, read_agents
from conductor_jax.workflows.spec_text import document_span, render_spec, without_item
from conductor_jax.workflows.workflow import (
    PLAIN_SUBTASK,
    ParsedPlan,
    ParseFailure,
    Reference,
    Step,
    Workflow,
)
from conductor_jax.workflows.yaml_nodes import Node, ScalarNode, YamlError, read_yaml


@dataclass(frozen=True, kw_only=True)
class SpecFormat:
  """Plans as specifications; a `PlanFormat`. LEMON's ablations leave out one of the last three.

  Attributes:
    max_steps: the most agents.
    workers: what asks for small, medium and large means: ids in the pool, None where it has none.
    roles: whether agents have a base role. Without it an agent is asked its duty alone.
    capacities: whether agents have a capacity. Without it all have the medium worker, or the
      largest on offer where that one is not.
    references: whether agents name those whose answers they see. Without it they see all earlier
      ones.

  Raises:
    ValueError: no capacity has a worker, or two have the same.
  """

  max_steps: int = 6
  workers: tuple[int | None, int | None, int | None]
  roles: bool = True
  capacities: bool = True
  references: bool = True

  def __post_init__(self):
    ids = list(self._by_capacity.values())
    if not ids or len(set(ids)) < len(ids):
      raise ValueError(f"each capacity needs a worker of its own, or none, got {self.workers}")

  @property
  def access(self) -> Access:
    """Of an agent with references, to those it names; of one without, to all earlier ones."""
    return "positions" if self.references else "binary"

  @property
  def names(self) -> tuple[str, ...]:
    return ("agents",)

  @property
  def fields(self) -> tuple[str, ...]:
    """Of an agent, in order."""
    left_out = {"role": not self.roles, "capacity": not self.capacities,
                "references": not self.references}
    return tuple(field for field in FIELDS if not left_out.get(field, False))

  @property
  def _by_capacity(self) -> dict[str, int]:
    """The worker of each capacity that has one, the smallest first."""
    return {capacity: worker for capacity, worker in zip(CAPACITIES, self.workers, strict=True)
            if worker is not None}

  def instructions(self, *, later: bool) -> str:
    self._refuse_later(later)
    return spec_instructions(self.fields, self.max_steps, list(self._by_capacity))

  def offered(self, numbers: Sequence[int]) -> str:
    """The line that says which capacities a question's plan may use.

    Args:
      numbers: ids in the pool; offers must not renumber the workers.
    """
    if not self.capacities:
      return "Every agent is the same model."
    return f"Available capacities: {', '.join(self._on_offer(numbers))}"

  def example_models(self, example: Example, numbers: Sequence[int]) -> Sequence[int]:
    del example
    return numbers

  def parse(
      self, completion: str, offer: Offer, *, previous: bool = False) -> ParsedPlan | ParseFailure:
    """Parses a completion, see `PlanFormat.parse`.

    Returns:
      The plan, with spans for the fields that the format has: of the text alone, quotes left out,
      and of the whole list for "references"; or why there is none. The reason begins with the line
      and the column of the completion.

    Raises:
      ValueError: there is an earlier round, or none of the format's workers is on offer.
    """
    self._refuse_later(previous)
    on_offer = self._on_offer(offer.workers)
    try:
      root = read_yaml(completion, *document_span(completion))
      agents = read_agents(completion, root, self.fields, self.max_steps, list(on_offer))
    except YamlError as fault:
      return ParseFailure(fault.reason, fault.position)
    return self._plan(agents, on_offer)

  def _plan(
      self, agents: Sequence[Mapping[str, Node]], on_offer: Mapping[str, int]) -> ParsedPlan:
    common = on_offer.get("medium", list(on_offer.values())[-1])
    numbers = {agent["name"].value: number for number, agent in enumerate(agents)}
    steps, spans, references, bare = [], {}, [], []
    for number, nodes in enumerate(agents):
      agent, sees = Agent.of(nodes), tuple(range(number))
      if self.references:
        opened = [numbers[name] for name in agent.references]
        sees = tuple(sorted(opened))
        references += [Reference(number, (earlier,), item.body) for earlier, item in zip(
            opened, nodes["references"].items, strict=True)]
      for field, node in nodes.items():
        spans[number, field] = (
            node.body if isinstance(node, ScalarNode) else (node.start, node.end))
      bare.append(ROLES[agent.role] if self.roles else PLAIN_SUBTASK)
      steps.append(Step(on_offer[agent.capacity] if self.capacities else common,
                        self._subtask(bare[-1], agent.duty), sees))
    return ParsedPlan(Workflow(tuple(steps)), spans, tuple(references), tuple(bare))

  def written(self, example: Example) -> str:
    """The text that a policy should write, `example`'s thought and plan.

    An agent is called by its role, "solver" where the example says none. Where a step's worker is
    none of the format's, as in examples of the prompt, the first number stands for the smallest
    capacity, the second for the next, and all others for the largest. What the format has no field
    for is left out.

    Raises:
      ValueError: no specification says this plan.
    """
    self._refuse_later(example.previous is not None)
    plan = render_spec(self._agents(example), self.fields, self.max_steps)
    text = f"{example.thought}\n{plan}"
    try:
      span = document_span(text)
    except YamlError as fault:
      raise ValueError(f"the thought hides the plan: {fault.reason}") from fault
    if span != (len(text) - len(plan), len(text)):
      raise ValueError(f"the thought looks like a plan of its own: {example.thought!r}")
    return text

  def _agents(self, example: Example) -> list[Agent]:
    steps = example.workflow.steps
    roles = example.roles or ("solver",) * len(steps)
    if len(roles) != len(steps):
      raise ValueError(f"the example has {len(steps)} steps, but {len(roles)} roles")
    capacities = {worker: capacity for capacity, worker in self._by_capacity.items()}
    if any(step.worker not in capacities for step in steps):
      known = list(self._by_capacity)
      capacities = {step.worker: known[min(step.worker, len(known) - 1)] for step in steps}
    names, seen = [], Counter()
    for role in roles:
      kind = role if self.roles else "agent"
      seen[kind] += 1
      numbered = not self.roles or seen[kind] > 1
      names.append(f"{kind}-{seen[kind]}" if numbered else kind)
    return [
        Agent(name, step.subtask, role if self.roles else None,
              capacities[step.worker] if self.capacities else None,
              tuple(names[earlier] for earlier in step.sees) if self.references else ())
        for name, role, step in zip(names, roles, steps, strict=True)]

  def lesser(self, worker: int, pool: Pool, offer: Offer) -> int | None:
    del pool
    ascending = list(self._on_offer(offer.workers).values())
    return ascending[ascending.index(worker) - 1] if worker in ascending[1:] else None

  def rewritten(
      self, completion: str, plan: ParsedPlan, span: tuple[int, int], family: Family,
      mutated: Workflow, offer: Offer) -> str | None:
    """The completion with one field rewritten, see `PlanFormat.rewritten`.

    A duty becomes the text of the base role, for it cannot be empty: the agent is then asked the
    same twice, and not once as in `mutated`.
    """
    changed, = (index for index, (one, other) in enumerate(
        zip(plan.workflow.steps, mutated.steps, strict=True)) if one != other)
    start, end = span
    step = mutated.steps[changed]
    if family == "dependency":
      items = [each.span for each in plan.references if each.step == changed]
      texts = [without_item(
          completion, plan.spans[changed, "references"], items, items.index(span))]
    else:
      words = step.subtask
      if family == "duty":
        step = Step(step.worker, self._subtask(words, words), step.sees)
      else:
        words = next(capacity for capacity, worker in self._by_capacity.items()
                     if worker == step.worker)
      # Within brackets a comma needs quotes.
      texts = [completion[:start] + form + completion[end:] for form in (words, f'"{words}"')]
    expected = Workflow((*mutated.steps[:changed], step, *mutated.steps[changed + 1:]))
    for text in texts:
      found = self.parse(text, offer)
      if text != completion and isinstance(found, ParsedPlan) and found.workflow == expected:
        return text
    return None

  def _subtask(self, bare: str, duty: str) -> str:
    return f"{bare} {duty.strip()}" if self.roles else duty.strip()

  def _on_offer(self, workers: Sequence[int]) -> dict[str, int]:
    """The worker of each capacity on offer, the smallest first."""
    found = {capacity: worker for capacity, worker in self._by_capacity.items()
             if worker in workers}
    if not found:
      raise ValueError(f"none of the workers of specifications, {self.workers}, is on offer, "
                       f"only {list(workers)}")
    return found

  def _refuse_later(self, later: bool) -> None:
    if later:
      raise ValueError("specifications have one round: there can be no answer of an earlier one")
