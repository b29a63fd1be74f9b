"""A world in which it is known what each field of a plan is worth.

Three steps: a finder that states a number, a bystander that says something, and a solver that needs
the number, a word of what to do with it ("add"), and a worker of some size:

    small 45 %, medium and large 90 % of such calls are right; without the number none is, and
    without the word one in four

What a worker is asked and shown, all of it, decides its luck, so a useless change brings new luck
and no better.
"""

import hashlib

from conductor_jax.workers.pool import CAPACITIES, Pool, WorkerSpec
from tests.workers.endpoint import Endpoint, completion, reply

RIGHT = {"small": 0.45, "medium": 0.9, "large": 0.9}
REFERENCE = "42"


class World(Endpoint):
  """Serves the workers "small", "medium" and "large", whose ids are 0, 1 and 2."""

  @property
  def pool(self) -> Pool:
    return Pool(tuple(
        WorkerSpec(name, self.base_url, name, price_in=price, price_out=price, capacity=name)
        for name, price in zip(CAPACITIES, (1.0, 2.0, 4.0), strict=True)))

  def behaviour(self, body):
    return reply(completion(self.answer(body), usage={"prompt_tokens": 8, "completion_tokens": 2}))

  @staticmethod
  def answer(body) -> str:
    *shown, asked = [turn["content"].lower() for turn in body["messages"]]
    asked = asked.rsplit("subtask:\n", 1)[1]
    luck = _luck(body["model"], *shown, asked, body["seed"])
    if "look" in asked:
      return f"The number is 7, for {luck:.3f} of all."
    if "comment" in asked or "writer" in asked or "text" in asked:
      return f"Fine, says one of {luck:.3f}."
    chance = RIGHT[body["model"]]
    if not any("the number is 7" in text for text in shown):
      chance = 0.0
    if "add" not in asked:
      chance /= 4
    return f"<answer>{REFERENCE if luck < chance else 41}</answer>"


def _luck(*parts) -> float:
  digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
  return int.from_bytes(digest, "big") / 2**64


# "small" and "large" where a capacity is wasted and where it is not.
SPEC = """This needs a number, then a sum.
agents:
  - name: finder
    role: researcher
    duty: Look for the number.
    capacity: large
    references: []
  - name: bystander
    role: writer
    duty: Comment on it.
    capacity: small
    references: [finder]
  - name: solver
    role: solver
    duty: Add the number to 35.
    capacity: {capacity}
    references: [finder, bystander]
"""
# The bystander's reference, the solver's two; duties; capacities of finder and solver.
SPEC_FIELDS = {
    "medium": {("dependency", "finder", 2): True, ("dependency", "bystander", 2): False,
               ("dependency", "finder", 1): False, ("duty", "Look for the number.", 0): False,
               ("duty", "Comment on it.", 1): False, ("duty", "Add the number to 35.", 2): True,
               ("capacity", "large", 0): False, ("capacity", "medium", 2): True},
    "large": {("capacity", "large", 2): False}}

LISTS = """Two steps and a comment.
model_id = [2, 0, {number}]
subtasks = ["Look for the number.", "Comment on it.", "Add the number to 35."]
access_list = [[], [0], [0]]"""
# A comment without its words tries to answer, and nobody sees it; a finder without them is none.
LIST_FIELDS = {
    "medium": {("dependency", "[0]", 2): True, ("dependency", "[0]", 1): False,
               ("duty", "Look for the number.", 0): True, ("duty", "Comment on it.", 1): False,
               ("duty", "Add the number to 35.", 2): True, ("capacity", "2", 0): False,
               ("capacity", "1", 2): True},
    "large": {("capacity", "2", 2): False}}
