"""What a person reads of single rollouts."""

import re

import pytest

from conductor_jax.reporting.rollout_samples import rollout_samples
from tests.reporting.test_report import rollout

WORKERS = ["small", "a/b"]


def shown(**changes):
  return rollout_samples([rollout(**changes)], WORKERS)


def headings(text):
  return re.findall(r"<h4>(.*?)(?: <small>.*?)?</h4>", text)


def test_a_rollout_has_its_question_its_plan_and_what_came_of_it():
  text = shown()
  assert headings(text) == [
      "Question", "Completion", "Workflow", "Worker answers", "Final answer", "Reference"]
  assert "</span> <i>words</i> Spell 0.</summary>" in text


def test_a_dozen_rollouts_are_spread_over_the_iteration():
  text = rollout_samples([rollout(i) for i in range(48)], WORKERS)
  assert re.findall(r"<small>words-(\d+)</small>", text) == [str(i) for i in range(0, 48, 4)]
  assert rollout_samples([], WORKERS) == ""


def test_rejected_and_unanswered_rollouts_say_so():
  text = shown(reward=None, reward_parts=None, answer=None, calls=[], plan="no lists")
  assert '<span class="reward none">rejected</span>' in text
  assert "<pre>no answer</pre>" in text and "Worker answers" not in text


@pytest.mark.parametrize(("outcome", "reward", "level", "words"), [
    (1.0, 0.9765, "high", "reward 0.977"), (1.5, 1.5, "high", "reward 1.5"),
    (0.5, 0.625, "middle", "reward 0.625"), (0.0, 0.0, "low", "reward 0")])
def test_the_reward_has_the_colour_of_the_answer_whatever_its_effort_took(
    outcome, reward, level, words):
  text = shown(reward=reward, reward_parts={"total": 0.9, "outcome": outcome})
  assert f'<span class="reward {level}">{words}</span>' in text


def test_what_was_on_offer_is_said_where_it_is_not_all():
  assert "<h4>On offer</h4><pre>a/b</pre>" in shown(offered=[1])
  assert "On offer" not in shown(offered=[0, 1])
  # Where no plan parsed, nothing has told the names.
  assert "On offer" not in rollout_samples([rollout(offered=[1])], [])


def test_a_second_round_shows_the_answer_that_it_began_with():
  text = shown(previous_answer="<41>")
  assert "</i> second round: Spell 0.</summary>" in text
  assert headings(text)[:3] == ["Question", "Answer of the first round", "Completion"]
  assert "<h4>Answer of the first round</h4><pre>&lt;41&gt;</pre>" in text
  text = shown(previous_answer="")
  assert "</i> second round: Spell 0.</summary>" in text
  assert "<h4>Answer of the first round</h4><pre>no answer</pre>" in text


def test_a_plan_without_steps_is_said_to_keep_the_answer():
  text = shown(previous_answer="41", plan=[], calls=[], answer="41")
  assert "<p>The plan keeps the answer.</p>" in text and "Worker answers" not in text
  assert "keeps" not in shown(previous_answer="41", plan="no lists", calls=[])
  assert "keeps" not in shown(previous_answer="41")


def test_a_call_without_an_answer_says_what_went_wrong():
  text = shown(calls=[
      {"worker": "a", "response": "", "outcome": "unavailable", "error": "HTTP 401: check it"},
      {"worker": "b", "response": "half", "outcome": "truncated", "error": None}])
  assert "<b>a</b> (unavailable: HTTP 401: check it)<pre>" in text
  assert "<b>b</b> (truncated)<pre>half</pre>" in text


def test_a_long_question_is_cut_between_words_in_the_line_that_is_always_seen():
  task = {"id": "t", "question": "word\n" * 40, "kind": "words", "reference": ""}
  assert "</i> " + "word " * 18 + "…</summary>" in shown(task=task)


def credited(number=0, **changes):
  """A rollout with credit for its fields."""
  return rollout(
      number, completion="model_id = [0, 1]", token_starts=[0, 8, 10, 17],
      advantages=[0.5, 0.5, 1.0, 0.5],
      plan=[{"worker": 0, "subtask": "Look.", "sees": [], "sees_previous": False},
            {"worker": 1, "subtask": "Add.", "sees": [0], "sees_previous": False}],
      counterfactuals=[{"family": "dependency", "step": 1, "span": [11, 17], "removed": [0],
                        "delta": 0.5}], **changes)


def test_a_rollout_with_credit_has_a_picture_and_beside_it_a_graph():
  text = rollout_samples([credited()], WORKERS)
  assert '<div class="beside"><div><h4>Completion</h4><div class="tokens"><span class=' in text
  assert '</div><div><h4>Workflow</h4><div class="graph"><svg ' in text
  assert "dependency of step 1 on 0: Δ +0.5</span>" in text
  assert '<p class="scale">Dashed: what a counterfactual took away.</p>' in text


def test_all_rollouts_of_a_page_have_one_scale():
  text = rollout_samples([credited(), credited(1) | {"advantages": [-4.0, 0.0, 0.0, 0.0]}], WORKERS)
  assert text.count("<span>wanted +4</span>") == 2
  assert '<span class="wanted" style="--share:12%" title="advantage +0.5">' in text


def test_a_plan_that_does_not_parse_says_why_and_has_no_graph():
  text = shown(plan="<no> lists", calls=[])
  assert "<p>The plan does not parse: &lt;no&gt; lists</p>" in text
  assert "Workflow" not in text and "<svg" not in text


def test_a_rejected_rollout_keeps_its_graph_and_its_text_has_no_colours():
  text = rollout_samples([credited(reward=None, reward_parts=None) | {
      "advantages": None, "counterfactuals": []}], WORKERS)
  assert "<h4>Completion</h4><pre>model_id = [0, 1]</pre>" in text
  assert "<title>step 1 sees step 0</title>" in text and "Dashed" not in text


def test_rows_of_older_logs_are_shown_as_they_are():
  text = shown()
  assert "<h4>Completion</h4><pre>model_id = [0]</pre>" in text
  assert "tokens" not in text and "scale" not in text


def test_worker_answers_are_counted_as_the_steps_are():
  assert '<h4>Worker answers</h4><ol start="0"><li><b>small</b>' in shown()
