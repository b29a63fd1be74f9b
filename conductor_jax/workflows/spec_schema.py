"""What a specification holds: a JSON Schema, and what no schema can say.

A document may break several rules. The reason names the first place in the text that does, in words
of our own: those of a schema's validator are for who knows the schema.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft202012Validator, ValidationError

from conductor_jax.workers.pool import CAPACITIES
from conductor_jax.workflows.roles import ROLES
from conductor_jax.workflows.yaml_events import shown
from conductor_jax.workflows.yaml_nodes import (
    ListNode,
    MapNode,
    Node,
    ScalarNode,
    YamlError,
    plain_value,
)

FIELDS = ("name", "role", "duty", "capacity", "references")
MAX_NAME = 64
# What str.splitlines breaks at.
_LINE_BREAK = "[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]"


@dataclass(frozen=True)
class Agent:
  """One agent as a specification says it.

  Attributes:
    name: by which later agents refer to it.
    duty: what it does.
    role: a base role, None in formats without.
    capacity: "small", "medium" or "large", None in formats without.
    references: the names of the earlier agents whose answers it sees.
  """

  name: str
  duty: str
  role: str | None = None
  capacity: str | None = None
  references: tuple[str, ...] = ()

  @classmethod
  def of(cls, fields: Mapping[str, Node]) -> "Agent":
    """The agent of `read_agents`' nodes."""
    values = {key: plain_value(node) for key, node in fields.items()}
    return cls(**values | {"references": tuple(values.get("references", ()))})


def specification_schema(fields: Sequence[str], max_steps: int) -> dict[str, Any]:
  """The JSON Schema of a document, whose scalars are all texts.

  Args:
    fields: of an agent, some of `FIELDS`.
    max_steps: the most agents.
  """
  schemas = {
      "name": {"type": "string", "maxLength": MAX_NAME,
               "allOf": [{"pattern": r"\S"}, {"not": {"pattern": _LINE_BREAK}}]},
      "role": {"enum": list(ROLES)},
      "duty": {"type": "string", "pattern": r"\S"},
      "capacity": {"enum": list(CAPACITIES)},
      "references": {"type": "array", "items": {"type": "string"}},
  }
  agent = {"type": "object", "properties": {field: schemas[field] for field in fields},
           "required": list(fields), "additionalProperties": False}
  return {
      "$schema": "https://json-schema.org/draft/2020-12/schema",
      "type": "object",
      "properties": {"agents": {
          "type": "array", "minItems": 1, "maxItems": max_steps, "items": agent}},
      "required": ["agents"], "additionalProperties": False}


def read_agents(
    text: str, root: Node, fields: tuple[str, ...], max_steps: int,
    capacities: Sequence[str] = CAPACITIES) -> list[dict[str, Node]]:
  """The agents of a document, by field.

  Args:
    text: the text that the document is a part of.
    root: the document.
    fields, max_steps: as in `specification_schema`.
    capacities: those on offer.

  Raises:
    YamlError: the document is no specification.
  """
  errors = _validator(fields, max_steps).iter_errors(plain_value(root))
  faults = [_schema_fault(error, root) for error in errors]
  agents = []
  if not faults:
    (_, listed), = root.pairs
    agents = [{key.value: node for key, node in agent.pairs} for agent in listed.items]
    faults = list(_further_faults(agents, capacities))
  if faults:
    # The first of those at one place: a schema's come in its own order.
    position, message = min(faults, key=lambda fault: fault[0])
    raise YamlError(text, position, message)
  return agents


@functools.cache
def _validator(fields: tuple[str, ...], max_steps: int) -> Draft202012Validator:
  return Draft202012Validator(specification_schema(fields, max_steps))


def _schema_fault(error: ValidationError, root: Node) -> tuple[int, str]:
  """Where a schema is broken, and what to say of it."""
  path = list(error.absolute_path)
  node = _node_at(root, path)
  field = next((part for part in reversed(path) if isinstance(part, str)), "")
  if error.validator == "additionalProperties":
    known = error.schema["properties"]
    key = next(key for key, _ in node.pairs if key.value not in known)
    who = "an agent" if path else "the document"
    return key.start, f"unknown key {shown(key.value)}: {who} has {', '.join(known)}"
  if error.validator == "maxItems":
    surplus = node.items[error.validator_value]
    return surplus.start, (f"there are {len(node.items)} agents, allowed are 1 to "
                           f"{error.validator_value}")
  if error.validator == "required":
    missing = next(key for key in error.validator_value if key not in error.instance)
    message = f"this agent has no {missing}" if path else f"the key {missing} is missing"
  elif error.validator == "minItems":
    message = "there are no agents: write one at least"
  elif error.validator == "maxLength":
    message = f"{field} has {len(node.value)} characters, allowed are {error.validator_value}"
  elif error.validator == "pattern":
    message = f"{field} is blank"
  elif error.validator == "not":
    message = f"{field} has a line break"
  elif error.validator == "enum" and isinstance(node, ScalarNode):
    message = f"{field} {shown(node.value)} must be one of {', '.join(error.validator_value)}"
  else:
    message = f"{_kind(path, error)}, got {_what(node)}"
  return node.start, message


def _node_at(root: Node, path: Sequence[str | int]) -> Node:
  node = root
  for part in path:
    if isinstance(node, MapNode):
      node = next(value for key, value in node.pairs if key.value == part)
    else:
      node = node.items[part]
  return node


def _kind(path: Sequence[str | int], error: ValidationError) -> str:
  """What a node of another kind should have been."""
  if not path:
    return "the document must be a map with the key agents"
  if path == ["agents"]:
    return "agents must be a list"
  if len(path) == 2:
    return f"an agent must be a map of {', '.join(error.schema['properties'])}"
  if path[-1] == "references":
    return "references must be a list of names, or [] for none"
  if path[2] == "references":
    return "a reference must be a name"
  if error.validator == "enum":
    return f"{path[2]} must be one of {', '.join(error.validator_value)}"
  return f"{path[2]} must be text"


def _what(node: Node) -> str:
  if isinstance(node, ScalarNode):
    return shown(node.value) if node.value else "nothing"
  return "a list" if isinstance(node, ListNode) else "a map"


def _further_faults(
    agents: Sequence[Mapping[str, Node]], capacities: Sequence[str]) -> Iterator[tuple[int, str]]:
  """Where agents that fit the schema cannot be, and why."""
  numbers: dict[str, int] = {}
  for number, agent in enumerate(agents):
    numbers.setdefault(agent["name"].value, number)
  for number, agent in enumerate(agents):
    name, capacity = agent["name"], agent.get("capacity")
    if numbers[name.value] != number:
      yield name.start, f"two agents are called {shown(name.value)}"
    if capacity is not None and capacity.value not in capacities:
      yield capacity.start, (f"capacity {shown(capacity.value)} is not on offer: choose one of "
                             f"{', '.join(capacities)}")
    if "references" in agent:
      yield from _reference_faults(agent["references"], number, numbers)


def _reference_faults(
    references: ListNode, number: int, numbers: Mapping[str, int]) -> Iterator[tuple[int, str]]:
  """Where the references of an agent cannot be, and why.

  Args:
    references: its list of names.
    number: of the agent.
    numbers: of all agents, by name in order.
  """
  earlier = ", ".join(shown(name) for name in numbers if numbers[name] < number)
  for place, reference in enumerate(references.items):
    name = shown(reference.value)
    target = numbers.get(reference.value)
    if target is None:
      known = f"the earlier ones are {earlier}" if earlier else "there is no earlier one"
      yield reference.start, f"no agent is called {name}: {known}"
    elif target == number:
      yield reference.start, f"may refer to earlier agents only: {name} is the agent itself"
    elif target > number:
      yield reference.start, f"may refer to earlier agents only: {name} comes later"
    elif any(other.value == reference.value for other in references.items[:place]):
      yield reference.start, f"{name} is referred to twice"
