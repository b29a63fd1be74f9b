import hashlib
import json
import os
import re
import subprocess
import sys

import pytest

from conductor_jax.arena.specialists import SPECIALISTS
from conductor_jax.errors import UserError
from conductor_jax.models.gguf import read_gguf
from conductor_jax.models.tokenizer import gguf_tokenizer
from conductor_jax.workers.pools import paper_pool
from conductor_jax.workflows.lists import ListFormat
from conductor_jax.workflows.prompts import PromptTemplate, Shot
from tests.small_conductor import byte_tokenizer
from tests.workflows.golden_prompts import (
    ANSWER,
    CASES,
    FOLDER,
    MODELS,
    PREFILL,
    QUESTION,
    fingerprint,
    fingerprints,
    template,
    whole_text,
)

PLAIN = PromptTemplate(ListFormat())
FORMATS = {name: format for name, (format, previous) in CASES.items() if previous is None}


@pytest.fixture(scope="module")
def smollm2(smollm2_file):
  return gguf_tokenizer(read_gguf(smollm2_file))


@pytest.fixture(scope="module")
def bytewise():
  """A tokenizer with one token per byte."""
  return byte_tokenizer()


class TestGolden:

  @pytest.mark.parametrize("name", CASES)
  def test_the_whole_text_is_the_one_that_is_kept(self, name):
    assert whole_text(name).encode() == (FOLDER / f"{name}.txt").read_bytes()

  def test_no_other_texts_are_kept(self):
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(CASES)
    assert len(FORMATS) == 6

  def test_the_tokens_are_those_that_are_kept(self, smollm2):
    assert fingerprints() == json.loads((FOLDER / "smollm2.json").read_text())

  def test_another_process_with_another_hash_seed_makes_the_same_texts_and_tokens(
      self, smollm2_file):
    printed = json.loads(subprocess.run(
        [sys.executable, "-m", "tests.workflows.golden_prompts"], check=True, capture_output=True,
        env={**os.environ, "PYTHONHASHSEED": "7"}).stdout)
    assert printed["texts"] == {
        path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in FOLDER.glob("*.txt")}
    assert printed["smollm2"] == json.loads((FOLDER / "smollm2.json").read_text())

  def test_a_fingerprint_tells_ids_and_their_order(self):
    assert fingerprint([1, 2]) == {
        "tokens": 2, "sha256": "34fb5c825de7ca4aea6e712f19d439c1da0c92c37b423936c5f618545ca4fa1f"}
    assert fingerprint([2, 1]) != fingerprint([1, 2]) != fingerprint([1, 2, 0])


class TestMessages:

  def test_messages_are_one_system_and_one_user_turn(self):
    for each in (PLAIN, template(ListFormat())):
      assert [message["role"] for message in each.messages("Why?", range(2))] == ["system", "user"]

  def test_workers_appear_as_numbers_only(self):
    user = PLAIN.messages("Why?", range(3))[1]["content"]
    assert user == "Question: Why?\n\nAvailable models: Model 0, Model 1, Model 2"
    kept = PLAIN.messages("Why?", (1, 4, 6))[1]["content"]
    assert kept == "Question: Why?\n\nAvailable models: Model 1, Model 4, Model 6"

  @pytest.mark.parametrize("name", CASES)
  def test_no_models_name_size_or_price_appears(self, name):
    text = whole_text(name).lower()
    names = [spec.name for spec in paper_pool().workers] + [each.name for each in SPECIALISTS]
    families = {re.match("[a-z]+", name)[0] for name in names}
    assert {"claude", "qwen", "archivist"} < families and len(families) == 11
    assert not [family for family in families if family in text]
    assert not [word for word in ("small", "medium", "large", "price", "cost", "$", "dollar", "32b")
                if word in text]

  def test_a_question_with_braces_stays_as_it_is(self):
    for question in ("What is {x} in {0}?", "{", "%s {models}"):
      user = PLAIN.messages(question, range(1), previous="{y}")[1]["content"]
      assert user == (
          f"Question: {question}\n\nAnswer so far: {{y}}\n\nAvailable models: Model 0")

  @pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)
  def test_system_text_shows_the_lists_of_the_format_in_order_and_the_step_limit(self, format):
    format = ListFormat(4, format.access, format.subtasks)
    system = PromptTemplate(format).messages("Why?", range(3))[0]["content"]
    places = [system.index(f"\n{name} = [") for name in format.names]
    assert places == sorted(places)
    assert "4 at most" in system
    for name in set(ListFormat().names) - set(format.names):
      assert name not in system
    assert ("subtask" in system) == format.subtasks
    assert ("access" in system) == (format.access != "none")

  @pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)
  def test_system_text_has_at_most_170_words_without_examples_and_230_in_later_rounds(
      self, format):
    each = PromptTemplate(format)
    assert len(each.messages("Why?", range(3))[0]["content"].split()) <= 170
    assert len(each.messages("Why?", range(3), previous="4")[0]["content"].split()) <= 230

  def test_system_text_explains_only_the_access_lists_that_parse(self):
    binary = PLAIN.messages("Why?", range(3))[0]["content"]
    positions = PromptTemplate(ListFormat(access="positions")).messages(
        "Why?", range(3))[0]["content"]
    assert 'access_list = [[] or ["all"], ...]' in binary and "counted from 0" not in binary
    assert "access_list = [[earlier steps], ...]" in positions and '"all"' not in positions

  def test_examples_stand_behind_the_explanation_each_with_its_own_models_and_the_prefill(self):
    shots = (Shot("Why?", (0, 3), "model_id = [3]"), Shot("How?", range(1), "model_id = [0]"))
    each = PromptTemplate(ListFormat(), shots, "Well.\n")
    assert each.messages("Q", range(2))[0]["content"] == (
        PLAIN.messages("Q", range(2))[0]["content"]
        + "\n\nExample 1\n\nQuestion: Why?\n\nAvailable models: Model 0, Model 3\n\n"
          "Well.\nmodel_id = [3]"
          "\n\nExample 2\n\nQuestion: How?\n\nAvailable models: Model 0\n\nWell.\nmodel_id = [0]")

  def test_a_later_round_shows_the_answer_and_says_how_to_keep_it(self):
    first, later = (PLAIN.messages("Why?", range(2), previous=answer) for answer in (None, "Four."))
    assert later[1]["content"] == (
        "Question: Why?\n\nAnswer so far: Four.\n\nAvailable models: Model 0, Model 1")
    added = later[0]["content"].removeprefix(first[0]["content"])
    assert "write the lists without entries" in added and '["all"]` also opens that answer' in added
    none = PromptTemplate(ListFormat(access="none")).messages("Why?", range(2), previous="Four.")
    assert "without entries" in none[0]["content"] and "all" not in none[0]["content"].split(
        "without entries")[1]


class TestTokens:

  def test_they_are_those_of_the_chat_and_then_those_of_the_prefill(self, bytewise):
    tokens = template(ListFormat()).tokens(bytewise, "Why?", range(2))
    prefill = bytewise.encode(PREFILL, add_special_tokens=False)
    assert len(prefill) == len(PREFILL) and tokens[-len(prefill):] == prefill
    chat = bytewise.apply_chat_template(
        template(ListFormat()).messages("Why?", range(2)), add_generation_prompt=True,
        tokenize=False)
    assert bytewise.decode(tokens) == chat + PREFILL
    assert chat.endswith("<|im_start|>assistant\n")

  def test_without_a_prefill_they_end_with_the_chat(self, bytewise):
    tokens = PLAIN.tokens(bytewise, "Why?", range(2))
    assert bytewise.decode(tokens).endswith("Model 1<|im_end|>\n<|im_start|>assistant\n")

  def test_an_answer_that_there_is_none_of_is_named_so(self, bytewise):
    for previous in ("", " \n"):
      text = bytewise.decode(PLAIN.tokens(bytewise, "Why?", range(2), previous=previous))
      assert "\n\nAnswer so far: (no answer)\n\n" in text


class TestLimit:
  """A previous answer that is too long."""

  def shown(self, tokenizer, previous, limit):
    """The answer as it is shown, and the number of tokens."""
    each = template(ListFormat(), examples=0)
    tokens = each.tokens(tokenizer, QUESTION, MODELS, previous=previous, limit=limit)
    text = tokenizer.decode(tokens)
    assert text.endswith(PREFILL)
    return text.split("Answer so far: ")[1].split("\n\nAvailable models")[0], len(tokens)

  @pytest.mark.parametrize("letter", ["x", "é", "漢", "🙂", "1 "], ids=ascii)
  def test_it_loses_its_beginning_until_it_fits_and_hardly_more(self, bytewise, letter):
    answer = letter * 600 + " so it is 12"
    size = len(answer.encode())
    _, whole = self.shown(bytewise, answer, None)
    for limit in (*range(whole - size + 60, whole, size // 20), whole - 2, whole - 1):
      shown, tokens = self.shown(bytewise, answer, limit)
      # The mark reserves 48 bytes, of which it takes 26 at least.
      assert limit - 26 <= tokens <= limit
      mark, rest = shown.split("\n")
      assert answer.endswith(rest)
      assert mark == f"[{len(answer) - len(rest)} characters left out]"

  def test_one_that_just_fits_is_whole(self, bytewise):
    answer = "x" * 300
    _, whole = self.shown(bytewise, answer, None)
    assert self.shown(bytewise, answer, whole) == (answer, whole)
    shown, tokens = self.shown(bytewise, answer, whole - 1)
    assert shown.startswith("[") and tokens < whole

  def test_tokens_of_many_bytes_are_counted_as_tokens(self, smollm2):
    answer = "The number of edges of a cube is twelve, as before. " * 200 + ANSWER
    _, whole = self.shown(smollm2, answer, None)
    _, least = self.shown(smollm2, "", None)
    for limit in range(least + 60, whole, 173):
      shown, tokens = self.shown(smollm2, answer, limit)
      assert limit - 26 <= tokens <= limit
      assert shown.endswith(ANSWER[-40:])

  def test_what_is_too_long_without_the_answer_is_returned_as_it_is(self, bytewise):
    for previous in ("four", "x" * 500):
      shown, tokens = self.shown(bytewise, previous, 100)
      assert tokens > 100
    assert shown == "[500 characters left out]\n"
    each = template(ListFormat())
    assert each.tokens(bytewise, QUESTION, MODELS, limit=100) == each.tokens(
        bytewise, QUESTION, MODELS)


class TestPrefill:
  COMPLETION = "One model is enough.\nmodel_id = [0]"

  def check(self, tokenizer, prefill):
    template(ListFormat(), prefill=prefill).check_prefill(
        tokenizer, QUESTION, MODELS, self.COMPLETION)

  @pytest.mark.parametrize("prefill", [PREFILL, "", "Plan:\n", "Let me think."])
  def test_one_that_the_tokenizer_keeps_apart_is_taken(self, smollm2, prefill):
    self.check(smollm2, prefill)

  @pytest.mark.parametrize(("prefill", "side"), [
      ("Let me plan ", "the plan after it"),
      ("Let me plan.\n\n", "the plan after it"),
      ("\n\nLet me plan.\n", "the chat template before it")])
  def test_one_that_it_joins_with_what_is_beside_it_is_refused_in_one_line(
      self, smollm2, prefill, side):
    with pytest.raises(UserError) as fault:
      self.check(smollm2, prefill)
    assert str(fault.value) == (
        f"--config.workflow.prefill={prefill!r}: the tokenizer joins it with {side}: begin it with "
        "a letter, end it with a full stop and a line break, or leave it empty")

  @pytest.mark.parametrize("prefill", [PREFILL, "Let me plan ", "\n\n"])
  def test_a_tokenizer_of_bytes_joins_nothing(self, bytewise, prefill):
    self.check(bytewise, prefill)
