"""Base roles that agents of a specification inherit from, each with what it always does.

LEMON (arXiv 2605.14483) has such a list and does not publish it; this one is ours. A role's text is
all that an agent is asked where its duty is taken back.
"""

from collections.abc import Mapping
from types import MappingProxyType

ROLES: Mapping[str, str] = MappingProxyType({
    "solver": "Answer the question.",
    "researcher": "Look up the facts that the question needs.",
    "calculator": "Do the calculation that the question needs.",
    "programmer": "Write the program that the question asks for.",
    "writer": "Write the text that the question asks for.",
    "planner": "Break the question down into steps.",
    "checker": "Check the answers so far, and correct what is wrong.",
    "finisher": "Give the final answer in the form that the question asks for.",
})
