"""What the conductor reads, and the examples of its warm start."""

import json
import re
import socket
from dataclasses import replace

import numpy as np
import pytest

from conductor_jax.arena.world import understand
from conductor_jax.errors import UserError
from conductor_jax.workers.offer import Offer
from conductor_jax.workflows.few_shot import OUTSIDE
from conductor_jax.workflows.lists import ListFormat, parse_lists
from conductor_jax.workflows.workflow import ParsedPlan
from configs import quickstart
from experiments.chat import Chat, Fitting
from experiments.components import load_splits, make_offers

WORKERS = range(7)
ASKED = re.compile(r"(?:Answer so far: (?P<previous>.*)\n\n)?Available models: (?P<models>.*)")


def config_of(**options):
  config = quickstart.get_config()
  config.tasks.train, config.evaluation.tasks = 300, 60
  config.update_from_flattened_dict({key.replace("__", "."): v for key, v in options.items()})
  return config


@pytest.fixture(scope="module")
def arena():
  config = config_of()
  splits = load_splits(config)
  return config, splits, Chat(config, splits, make_offers(config).training, None)


@pytest.fixture(scope="module")
def chat_of(arena):
  """(options) → a chat of the same tasks and tokens."""
  _, splits, chat = arena

  def build(**options):
    config = config_of(**options)
    return Chat(config, splits, make_offers(config).training, chat.tokenizer)

  return build


def decoded(chat, tokens) -> str:
  return chat.tokenizer.decode(tokens)


class TestPrompts:

  def test_they_are_in_the_tokens_of_the_tokenizer_that_is_given(self, arena):
    config, splits, chat = arena
    assert len(chat.tokenizer) == 1024
    offers = make_offers(config).training
    given = Chat(config_of(tokenizer__vocab_size=300), splits, offers, None).tokenizer
    other = Chat(config, splits, offers, given)
    assert other.tokenizer is given
    assert max(other.prompt(splits.train[0])) < 300

  def test_they_say_nothing_but_the_question_and_the_numbers_of_the_models(self, arena):
    _, splits, chat = arena
    task = splits.heldout[0]
    text = decoded(chat, chat.prompt(task))
    assert task.question in text and "Model 6" in text and "Model 7" not in text
    assert understand(task.question) is not None
    other = text.replace(task.question, "")
    assert "almanac" not in other and "calculat" not in other

  def test_they_name_the_workers_on_offer_and_all_that_can_be_where_nothing_is_said(self, chat_of,
                                                                                    arena):
    task = arena[1].train[0]
    chat = chat_of(pool__offer="groups:two,one", pool__groups=(
        ("two", ("clerk-medium", "scribe-small")), ("one", ("scribe-small",))))
    ids = sorted(chat._offers.whole.workers)
    assert len(ids) == 2
    models = ASKED.search(decoded(chat, chat.prompt(task)))["models"]
    assert models.startswith(f"Model {ids[0]}, Model {ids[1]}<")
    text = decoded(chat, chat.prompt(task, Offer((1, 4, 6), renumbered=True)))
    assert ASKED.search(text)["models"].startswith("Model 0, Model 1, Model 2<")

  def test_those_of_the_arena_fit_the_quickstarts_limits_and_so_do_example_plans(self, arena):
    config, splits, chat = arena
    lengths = [len(chat.prompt(task)) for task in (*splits.train, *splits.heldout)]
    assert chat.fitting(splits) == Fitting(splits, 0, min(lengths), max(lengths))
    generator = np.random.default_rng(0)
    longest = max(len(chat.example_tokens(task, generator)) for task in splits.train)
    assert longest <= config.rollout.max_completion_tokens

  def test_tasks_with_too_long_ones_are_left_out_and_counted(self, arena, chat_of):
    _, splits, chat = arena
    lengths = sorted(len(chat.prompt(task)) for task in (*splits.train, *splits.heldout))
    median = lengths[len(lengths) // 2]
    fitting = chat_of(rollout__max_prompt_tokens=median).fitting(splits)
    assert fitting.left_out == sum(length > median for length in lengths) > 0
    kept = [*fitting.splits.train, *fitting.splits.heldout]
    assert len(kept) + fitting.left_out == len(lengths)
    assert (fitting.shortest, fitting.longest) == (lengths[0], median)
    with pytest.raises(UserError, match=(
        f"^--config.rollout.max_prompt_tokens=3: every prompt is longer, the shortest has "
        f"{lengths[0]}; raise it, or lower --config.workflow.few_shot$")):
      chat_of(rollout__max_prompt_tokens=3).fitting(splits)

  def test_a_line_tells_how_long_they_are_and_how_much_of_that_is_no_question(self, arena, chat_of):
    _, splits, chat = arena
    plain = chat.prompt_line(chat.fitting(splits))
    shown = chat_of(workflow__few_shot=2, workflow__few_shot_source="training",
                    rollout__max_prompt_tokens=1000)
    line = shown.prompt_line(shown.fitting(splits))
    numbers = []
    for text, each, examples in ((plain, chat, 0), (line, shown, 2)):
      found = re.fullmatch(r"prompts: (\d+) to (\d+) tokens, (\d+) of them around the question, "
                           rf"with {examples} examples", text)
      shortest, longest, around = map(int, found.groups())
      lengths = {task.id: len(each.prompt(task)) for task in (*splits.train, *splits.heldout)}
      assert (shortest, longest) == (min(lengths.values()), max(lengths.values()))
      assert around == len(each.prompt(replace(splits.train[0], question="")))
      numbers.append((shortest, around))
    # Examples make every prompt longer by the same.
    assert numbers[1][0] - numbers[0][0] == numbers[1][1] - numbers[0][1] > 50


class TestShots:

  LONG = dict(rollout__max_prompt_tokens=2000)

  def test_there_are_as_many_as_wanted_of_those_that_come_with_the_project(self, chat_of):
    assert chat_of(workflow__few_shot=0).template.shots == ()
    for wanted in (1, 5):
      shots = chat_of(workflow__few_shot=wanted, **self.LONG).template.shots
      assert [shot.question for shot in shots] == [each.question for each in OUTSIDE[:wanted]]

  def test_those_of_training_are_its_first_questions_with_plans_that_are_drawn_for_them(
      self, arena, chat_of):
    options = dict(workflow__few_shot=5, workflow__few_shot_source="training", **self.LONG)
    shots, again = (chat_of(**options).template.shots for _ in range(2))
    assert [shot.question for shot in shots] == [task.question for task in arena[1].train[:5]]
    assert shots == again != chat_of(**options, seed=1).template.shots
    workers = set()
    for shot in shots:
      plan = parse_lists(shot.completion, ListFormat(), workers=WORKERS)
      assert list(shot.models) == [*WORKERS]
      workers |= {step.worker for step in plan.workflow.steps}
    assert len(workers) > 2

  def test_they_are_in_the_format_that_is_asked_for_and_stand_in_the_prompt(self, arena, chat_of):
    format = ListFormat(access="none", subtasks=False)
    for source in ("outside", "training"):
      chat = chat_of(workflow__few_shot=3, workflow__few_shot_source=source,
                     workflow__access="none", workflow__subtasks=False, **self.LONG)
      text = decoded(chat, chat.prompt(arena[1].heldout[0]))
      for shot in chat.template.shots:
        assert "subtasks" not in shot.completion and "access_list" not in shot.completion
        assert isinstance(parse_lists(shot.completion, format, workers=shot.models), ParsedPlan)
        assert shot.completion in text

  @pytest.fixture
  def from_file(self, chat_of, tmp_path):
    """(options) → a chat with examples from a file: of one step, of three, of two."""
    path = tmp_path / "own.jsonl"

    def steps(*sees):
      return [{"worker": 0, "subtask": f"Do {i}.", "sees": seen} for i, seen in enumerate(sees)]

    path.write_text("".join(json.dumps(
        {"question": f"Why {len(each)}?", "models": 2, "thought": "So.", "steps": each}) + "\n"
        for each in (steps([]), steps([], [0], [1]), steps([], [0]))))
    return lambda **options: chat_of(
        workflow__few_shot_source="file", workflow__few_shot_file=str(path), **self.LONG, **options)

  def test_those_of_a_file_come_in_its_order_without_those_that_are_too_long(self, from_file):
    positions = from_file(workflow__few_shot=3, workflow__access="positions").template.shots
    assert [shot.question for shot in positions] == ["Why 1?", "Why 3?", "Why 2?"]
    assert positions[1].completion.endswith("access_list = [[], [0], [1]]")
    short = from_file(workflow__few_shot=2, workflow__max_steps=2).template.shots
    assert [shot.question for shot in short] == ["Why 1?", "Why 2?"]

  @pytest.mark.parametrize(("options", "line"), [
      (dict(workflow__few_shot=3, workflow__max_steps=2),
       "--config.workflow.few_shot=3: of the examples of few_shot_source=file only 2 have 2 steps "
       "at most"),
      (dict(workflow__few_shot=2),
       "--config.workflow.few_shot_source=file: under binary access step 2 sees all earlier steps "
       "or none, and not [1]")])
  def test_those_that_cannot_be_shown_are_one_line(self, from_file, options, line):
    with pytest.raises(UserError) as fault:
      from_file(**options)
    assert str(fault.value) == line


class TestExamplesOfTheWarmStart:

  def drawn(self, chat, splits, count=300):
    """Of each task, the prompt and the texts of its plans."""
    generator = np.random.default_rng(0)
    rows = [chat.examples(task, generator, 3) for task in splits.train[:count]]
    eos = chat.tokenizer.eos_token_id
    assert all(tokens[-1] == eos for row in rows for tokens in row.completion_tokens)
    return [(decoded(chat, row.prompt_tokens),
             [decoded(chat, tokens[:-1]) for tokens in row.completion_tokens]) for row in rows]

  @pytest.mark.parametrize("renumber", [False, True])
  def test_a_prompt_lists_the_offer_that_is_drawn_for_it_and_its_plans_use_nothing_else(
      self, arena, chat_of, renumber):
    chat = chat_of(pool__offer="uniform:2-3", pool__renumber=renumber)
    offers, used = set(), set()
    for prompt, texts in self.drawn(chat, arena[1], 120):
      numbers = tuple(int(n) for n in re.findall(r"Model (\d)", ASKED.search(prompt)["models"]))
      offers.add(numbers)
      assert len(texts) == 3
      for text in texts:
        plan = parse_lists(text, ListFormat(), workers=numbers)
        assert isinstance(plan, ParsedPlan), plan
        used |= {(numbers, step.worker) for step in plan.workflow.steps}
    if renumber:
      assert offers == {(0, 1), (0, 1, 2)}
      assert used == {(numbers, worker) for numbers in offers for worker in numbers}
    else:
      # Of 21 pairs and 35 triples.
      assert {len(numbers) for numbers in offers} == {2, 3} and len(offers) > 40

  def test_where_there_are_later_rounds_half_of_the_prompts_are_of_these(self, arena, chat_of):
    chat = chat_of(workflow__max_rounds=2, rollout__max_prompt_tokens=1000)
    later, kept, opened = 0, [], 0
    for prompt, texts in self.drawn(chat, arena[1]):
      previous = ASKED.search(prompt)["previous"]
      assert (previous is not None) == ("A plan has been tried before" in prompt)
      later += previous is not None
      for text in texts:
        plan = parse_lists(text, ListFormat(), workers=WORKERS, previous=previous is not None)
        assert isinstance(plan, ParsedPlan), plan
        if previous is None:
          assert plan.workflow.steps
        else:
          kept.append(not plan.workflow.steps)
          opened += any(step.sees_previous for step in plan.workflow.steps)
    # Of 300, and then of three plans each: four standard deviations of fair coins.
    assert abs(later - 150) < 35
    assert abs(np.mean(kept) - 0.5) < 2 / np.sqrt(len(kept))
    assert opened > 0.1 * len(kept)

  def test_where_there_is_one_round_none_is_of_a_later_one(self, arena, chat_of):
    chat = chat_of(workflow__max_rounds=1)
    assert all("so far" not in prompt for prompt, _ in self.drawn(chat, arena[1], 60))

  def test_without_rounds_and_offers_they_are_valid_plans_of_all_workers(self, arena):
    _, splits, chat = arena
    generator = np.random.default_rng(0)
    for task in splits.train[:50]:
      tokens = chat.example_tokens(task, generator)
      assert tokens[-1] == chat.tokenizer.eos_token_id
      plan = parse_lists(decoded(chat, tokens[:-1]), ListFormat(), workers=WORKERS)
      assert isinstance(plan, ParsedPlan)

  def test_a_prefill_is_in_their_prompt_and_not_in_what_is_learnt(self, arena, chat_of):
    prefill = "Let me plan this step by step.\n"
    chat = chat_of(workflow__prefill=prefill, rollout__max_prompt_tokens=1000)
    for prompt, texts in self.drawn(chat, arena[1], 20):
      assert prompt.endswith(prefill)
      assert all(text.startswith("This needs ") for text in texts)


@pytest.fixture
def taken_port():
  with socket.socket() as taken:
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    yield taken.getsockname()[1]


FEW = ("--config.tasks.train=300", "--config.evaluation.tasks=12")


@pytest.mark.parametrize(("options", "line"), [
    (("--config.workflow.few_shot=1", "--config.workflow.few_shot_source=file",
      "--config.workflow.few_shot_file=none.jsonl"),
     "none.jsonl with the examples of the prompt cannot be read: .*No such file.*"),
    (("--config.workflow.few_shot=2", "--config.workflow.max_steps=1"),
     "--config.workflow.few_shot=2: of the examples of few_shot_source=outside only 1 have 1 steps "
     "at most"),
    # So often in the prompts that the tokenizer has a token for it and what follows it there.
    (("--config.workflow.prefill=Plan: ", "--config.workflow.few_shot=1",
      "--config.workflow.few_shot_source=training"),
     "--config.workflow.prefill='Plan: ': the tokenizer joins it with the plan after it: .*"),
], ids=["no file", "too few examples", "prefill"])
def test_what_the_conductor_cannot_be_asked_is_one_line_before_a_worker_is_started(
    program, tmp_path, taken_port, options, line):
  # Workers that were started would find their port taken.
  done = program.run(tmp_path / "run", *FEW, f"--config.pool.port={taken_port}", *options)
  assert (done.returncode, done.stdout) == (2, "")
  told, = done.stderr.splitlines()
  assert re.fullmatch(f"error: {line}", told)
  assert not (tmp_path / "run").exists()


def test_workers_whose_port_is_taken_are_told_once_everything_else_is_as_it_must_be(
    program, tmp_path, taken_port):
  done = program.run(tmp_path / "run", *FEW, f"--config.pool.port={taken_port}")
  assert done.returncode == 2
  assert str(taken_port) in done.stderr.splitlines()[-1]
  assert not (tmp_path / "run").exists()
