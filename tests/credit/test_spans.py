"""From the characters of a field to the tokens that wrote them."""

import functools

import numpy as np
import pytest

from conductor_jax.arena.plans import example_team
from conductor_jax.arena.tokenizer import LIST_ENDS, SPEC_ENDS, train_tokenizer
from conductor_jax.arena.world import World
from conductor_jax.credit.spans import TokenPlaces, delta_scale, token_credit, token_places
from conductor_jax.models.gguf import read_gguf
from conductor_jax.models.tokenizer import gguf_tokenizer
from conductor_jax.workers.offer import Offer
from conductor_jax.workflows import literals
from conductor_jax.workflows.lists import ListFormat
from conductor_jax.workflows.workflow import ParsedPlan
from tests.small_conductor import TOKENIZER as BYTES
from tests.workflows.drawn_lists import drawn_lists
from tests.workflows.drawn_specs import SPEC, drawn_spec

PLANS = 1000
LISTS = ListFormat(access="positions")
ALL = Offer(tuple(range(7)))


@functools.cache
def drawn(kind: str) -> list[tuple[str, ParsedPlan]]:
  """Completions in random styles, and the plans they say."""
  generator, found = np.random.default_rng(11), []
  for _ in range(PLANS):
    if kind == "spec":
      text, _, workflow = drawn_spec(generator)
      plan = SPEC.parse(text, ALL)
    else:
      text, workflow = drawn_lists(generator)
      plan = LISTS.parse(text, ALL)
    assert isinstance(plan, ParsedPlan) and plan.workflow == workflow, (text, plan)
    found.append((text, plan))
  return found


def spans(plan: ParsedPlan) -> list[tuple[int, int]]:
  return [*plan.spans.values(), *(each.span for each in plan.references)]


@pytest.fixture(scope="module")
def tokenizers(smollm2_file):
  """Three: bytes, one whose tokens span words and lines, and that of a real model."""
  texts = [text for text, _ in drawn("spec")[:100] + drawn("lists")[:100]] * 3
  return {"bytes": BYTES, "arena": train_tokenizer(texts, 700, LIST_ENDS),
          "smollm2": gguf_tokenizer(read_gguf(smollm2_file))}


def test_the_span_of_a_list_entry_cut_out_of_the_text_is_the_entry():
  for text, plan in drawn("lists"):
    for index, step in enumerate(plan.workflow.steps):
      def cut(field, text=text, plan=plan, index=index):
        return text[slice(*plan.spans[index, field])]

      assert int(cut("worker")) == step.worker
      start, end = plan.spans[index, "subtask"]
      raw = text[start - 2:start - 1] == "r" and not text[start - 3:start - 2].isalnum()
      literal = ("r" if raw else "") + text[start - 1:end + 1]
      assert literals.scan_string(literal, 0, "it").value == step.subtask
      sees = cut("sees")
      assert ("all" in sees) or {int(c) for c in sees if c.isdigit()} == set(step.sees)


@pytest.mark.parametrize("kind", ["spec", "lists"])
@pytest.mark.parametrize("name", ["bytes", "arena", "smollm2"])
def test_the_tokens_of_a_span_cover_it_and_none_of_them_lies_outside(kind, name, tokenizers):
  tokenizer, checked = tokenizers[name], 0
  for text, plan in drawn(kind):
    tokens = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
    places = token_places(tokenizer, tokens)
    # What was read is what was written.
    assert places.ends[-1] == len(text)
    for start, end in spans(plan):
      covering = places.covering((start, end))
      inside = {c for s, e in zip(places.starts[covering], places.ends[covering], strict=True)
                for c in range(s, e)}
      assert set(range(start, end)) <= inside
      outside = zip(places.starts[~covering], places.ends[~covering], strict=True)
      assert all(e <= start or s >= end for s, e in outside)
      assert not covering[-1]  # the end-of-sequence token
      checked += 1
  assert checked > 5 * PLANS


def test_places_are_those_of_the_sampled_tokens_and_not_of_another_way_to_write_the_text(
    tokenizers):
  tokenizer = tokenizers["arena"]
  letters = [tokenizer.convert_tokens_to_ids(c) for c in "references"]
  assert len(tokenizer.encode("references", add_special_tokens=False)) < len(letters)
  places = token_places(tokenizer, letters)
  assert places.starts.tolist() == list(range(10)) and places.ends.tolist() == list(range(1, 11))


def test_tokens_that_write_one_character_together_share_its_place():
  tokens = [*BYTES.encode("a😀b", add_special_tokens=False), BYTES.eos_token_id]
  places = token_places(BYTES, tokens)
  assert places.starts.tolist() == [0, 1, 1, 1, 1, 2, 3]
  assert places.ends.tolist() == [1, 2, 2, 2, 2, 3, 3]
  assert places.covering((1, 2)).tolist() == [False, True, True, True, True, False, False]
  assert not places.covering((1, 1)).any() and not places.covering((3, 4)).any()


def test_bytes_that_are_no_character_have_the_place_that_the_text_gives_them():
  generator = np.random.default_rng(0)
  for _ in range(200):
    tokens = generator.integers(0, len(BYTES), 20).tolist()
    text = BYTES.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    places = token_places(BYTES, tokens)
    assert places.ends.max() == len(text)
    assert (np.diff(places.starts) >= 0).all() and (places.starts <= places.ends).all()


def test_no_token_of_a_canonical_specification_has_a_part_in_two_fields():
  texts = [SPEC.written(example) for example in _examples()]
  tokenizer = train_tokenizer(texts * 30, 600, SPEC_ENDS)
  for text in texts:
    places = token_places(tokenizer, tokenizer.encode(text, add_special_tokens=False))
    plan = SPEC.parse(text, ALL)
    fields = [span for (_, field), span in plan.spans.items() if field != "references"]
    fields += [each.span for each in plan.references]
    assert len(fields) >= 4 * len(plan.workflow.steps)
    parts = np.sum([places.covering(span) for span in fields], axis=0)
    assert parts.max() == 1


def _examples():
  generator = np.random.default_rng(0)
  return [example_team(task, (0, 2, 4), generator) for task in World(0).tasks("train", 60)]


class TestCredit:
  PLACES = TokenPlaces(np.array([0, 2, 4, 6, 8]), np.array([2, 4, 6, 8, 8]))

  def test_the_tokens_of_a_field_share_what_it_is_worth(self):
    credit = token_credit(self.PLACES, [((3, 5), 0.5)], weight=2.0, scale=1.0, bound=1.0)
    assert credit.tolist() == [0.0, 1.0, 1.0, 0.0, 0.0] and credit.dtype == np.float32

  def test_a_worth_is_scaled_then_bounded_then_weighted(self):
    credit = token_credit(self.PLACES, [((0, 2), 0.5), ((4, 6), -0.02)], weight=3.0, scale=0.1,
                          bound=1.5)
    assert credit == pytest.approx([4.5, 0.0, -0.6, 0.0, 0.0])

  def test_a_token_with_a_part_in_two_fields_has_both(self):
    credit = token_credit(self.PLACES, [((1, 3), 0.5), ((2, 4), -0.25)], weight=1.0, scale=1.0,
                          bound=1.0)
    assert credit.tolist() == [0.5, 0.25, 0.0, 0.0, 0.0]

  def test_a_field_in_the_prefill_has_no_token(self):
    credit = token_credit(self.PLACES, [((-6, 0), 0.5)], weight=1.0, scale=1.0, bound=1.0)
    assert not credit.any()

  @pytest.mark.parametrize(("scale", "deltas", "expected"), [
      ("none", [3.0, -4.0], 1.0), ("batch", [3.0, -4.0], np.sqrt(12.5)), ("batch", [0.0, 0.0], 1.0),
      ("batch", [], 1.0), ("none", [], 1.0)])
  def test_the_scale_is_one_or_the_root_mean_square(self, scale, deltas, expected):
    assert delta_scale(deltas, scale) == pytest.approx(expected)
