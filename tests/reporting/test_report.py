"""report.html: complete, self-contained, and safe with whatever text a model wrote."""

import html
import math
import re
from html.parser import HTMLParser

import pytest

from conductor_jax.reporting.report import write_report

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Balance(HTMLParser):
  """Checks that elements nest, and collects the names of those there are."""

  def __init__(self):
    super().__init__()
    self.open, self.seen, self.text = [], set(), []

  def handle_starttag(self, tag, attrs):
    self.seen.add(tag)
    if tag not in VOID:
      self.open.append(tag)

  def handle_endtag(self, tag):
    assert self.open.pop() == tag

  def handle_startendtag(self, tag, attrs):
    self.seen.add(tag)

  def handle_data(self, data):
    self.text.append(data)


def read(path):
  text = path.read_text(encoding="utf-8")
  parser = Balance()
  parser.feed(text)
  assert parser.open == []
  return text, parser


def result(accuracy):
  return {
      "accuracy": accuracy, "accuracy_interval": [accuracy - 0.049, accuracy + 0.051],
      "accuracy_by_kind": {"words": accuracy}, "parse_rate": 1.0,
      "correct_given_parsed": accuracy, "steps_per_plan": 1.2, "worker_entropy_bits": 2.0,
      "tokens_per_task": 100.0, "cost_per_task": 0.001, "tasks": 400, "rejected": 0}


def grpo(step):
  return {
      "phase": "grpo", "step": step, "reward": 0.5, "accuracy": 0.25, "accuracy/words": 0.25,
      "parse_rate": 1.0, "correct_given_parsed": 0.25, "steps_per_plan": 1.5,
      "worker_entropy_bits": 1.0, "access_density": 0.5, "worker_tokens": 80.0,
      "zero_variance_groups": 0.5, "failed_groups": 0.25, "duplicate_plans": 0.75,
      "wrong_duplicates": 0.125, "steps_per_plan/words": 1.25, "rejected": 0.0, "loss": 0.0,
      "kl": 0.01, "entropy": 1.0, "grad_norm": None, "learning_rate": 1e-4,
      "clip_fraction": 0.375, "clip_fraction_low": 0.125, "clip_fraction_high": 0.25,
      "kl_to_sampler": 1e-4, "tokens_per_second": 5000.0,
      "logprob_gap_mean": 1e-3, "logprob_gap_max": 1e-2, "completion_tokens": 40.0,
      "seconds_sampling": 0.5, "seconds_executing": 0.4, "seconds_waiting": 0.3,
      "seconds_training": 0.7, "seconds_publishing": 0.1, "staleness": 0.5, "staleness_max": 1,
      "share/words/small": 0.25, "share/words/a/b": 0.75}


def rollout(number=0, **changes):
  return {
      "task": {"id": f"words-{number}", "question": f"Spell {number}.", "kind": "words",
               "reference": "yes"},
      "offered": [0, 1], "previous_answer": None, "plan": [{"worker": 0}],
      "completion": "model_id = [0]", "answer": "no", "reward": 0.5,
      "reward_parts": {"total": 0.5, "outcome": 0.5},
      "calls": [{"worker": "small", "response": "no", "outcome": "answered", "error": None}],
      **changes}


SUMMARY = {
    "seconds": 5400.0, "iterations": 40, "peak_memory_gib": 2.5,
    "heldout": {"before_rl": result(0.25), "after_rl": result(0.5),
                "best_single_worker": result(0.375), "random_plan": result(0.125)},
    "warnings": [{"iteration": 12, "warning": "collapse: few plans < parse"},
                 {"iteration": 30, "warning": "collapse: one worker"}],
    "spending": {
        "small": {"calls": 1200, "tokens": 34_000, "cost": 0.25, "possible_tokens": 0,
                  "possible_cost": 0.0, "possibly_billed": 0, "estimated": 7},
        "a/b": {"calls": 3, "tokens": 80, "cost": 1.5, "possible_tokens": 900,
                "possible_cost": 0.0125, "possibly_billed": 2, "estimated": 0}}}
METRICS = [{"phase": "sft", "step": i, "loss": 3.0 / (i + 1), "grad_norm": 1.0} for i in range(30)]
METRICS += [grpo(i) for i in range(40)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """The page of a whole run."""
  workdir = tmp_path_factory.mktemp("whole")
  path = write_report(workdir, SUMMARY, "{}", METRICS, [rollout()])
  assert path == workdir / "report.html"
  return read(path)[0]


def test_a_whole_run_shows_every_panel(whole):
  titles = set(re.findall(r"<h3>(.*?)</h3>", whole))
  assert titles >= {
      "Reward and accuracy", "Accuracy by kind of task", "Parsing and correctness",
      "Steps per plan", "Open access lists", "Worker entropy", "Worker tokens",
      "Divergence and sampler mismatch", "Policy loss", "Time per iteration", "Warm-start loss",
      "Clipped tokens", "Divergence from the sampler", "Training speed",
      "Time of a group of rollouts", "Age of the rollouts", "Groups without a gradient",
      "Duplicate plans", "Steps per plan by kind of task"}
  assert {"all 0.375 → 0.375", "below 0.125 → 0.125", "above 0.25 → 0.25",
          "KL 0.0001 → 0.0001", "equal rewards 0.5 → 0.5", "all wrong alike 0.25 → 0.25",
          "equal an earlier one 0.75 → 0.75", "and are wrong 0.125 → 0.125",
          "words 1.25 → 1.25"} <= set(re.findall(r"</svg>([^<]*)</li>", whole))
  # Every gradient norm of the training steps is null.
  assert "Gradient norm" not in titles
  assert re.findall(r"<h2>(.*?)</h2>", whole) == [
      "Warnings", "Held-out tasks", "Learning curves", "Which worker is called",
      "What the workers were paid", "Warm start",
      "Sample rollouts of the last iteration", "Configuration"]


def test_the_headline_compares_with_the_best_single_worker_and_names_the_interval(whole):
  assert "25.0% → <strong>50.0%</strong>" in whole
  assert "12.5 points above the best single worker (37.5%)" in whole
  assert "400 tasks; the 95% interval is 45.1% to 55.1%." in whole
  # In the table for each of the four, too.
  assert "<td class=\"kind\">45.1–55.1%</td>" in whole and whole.count("–30.1%</td>") == 1
  assert "90 min" in whole and "2.5 GiB" in whole


def test_what_workers_were_paid_is_a_table_the_dearest_first_and_what_is_uncertain_apart(whole):
  table = whole[whole.index("What the workers were paid"):]
  rows = re.findall(r"<th scope=row>([^<]*)</th>((?:<td>[^<]*</td>)+)", table)[:2]
  assert [(name, re.findall(r"<td>([^<]*)</td>", cells)) for name, cells in rows] == [
      ("a/b", ["3", "80", "1.5000", "0", "2", "0.0125"]),
      ("small", ["1,200", "34,000", "0.2500", "7", "0", "0.0000"])]
  assert "$1.7500 in all" in table


def test_every_warning_is_listed_with_its_iteration(whole):
  section = whole[whole.index("<h2>Warnings"):whole.index("<h2>Held-out")]
  assert re.findall(r"<li>(.*?)</li>", section) == [
      "After iteration 12: collapse: few plans &lt; parse",
      "After iteration 30: collapse: one worker"]


def panels(tmp_path, **metrics):
  """Titles and legends of the panels of a run of one step."""
  text, _ = read(write_report(tmp_path, {}, "", [{"phase": "grpo", "step": 0, **metrics}], []))
  return re.findall(r"<h3>(.*?)</h3>", text), re.findall(r"</svg>([^<]*)</li>", text)


def test_what_effort_takes_from_the_reward_is_drawn_where_it_takes_any(tmp_path, whole):
  assert panels(tmp_path, reward_cost=-0.02, reward_latency=-1e-5) == (
      ["Taken from the reward"], ["for dollars −0.02", "for seconds −1e−05"])
  assert panels(tmp_path, reward_tokens=-0.5)[1] == ["for tokens −0.5"]
  assert "Taken from the reward" not in whole


def test_second_rounds_are_drawn_where_there_are_any(tmp_path, whole):
  titles, legends = panels(tmp_path, **{
      "round2/accuracy": 0.5, "round2/accuracy_before": 0.25, "round2/reward": 0.75,
      "round2/parse_rate": 1.0, "round2/kept": 0.4, "round2/kept_if_right": 0.8,
      "round2/kept_if_wrong": 0.1, "round2/steps_per_plan": 1.5})
  assert titles == ["Second rounds", "Answers that a second round keeps", "Steps per second plan"]
  assert legends == [
      "right before 0.25", "right after 0.5", "reward 0.75", "plans that parse 1",
      "right ones 0.8", "wrong ones 0.1", "all 0.4", "steps 1.5"]
  assert not set(titles) & set(re.findall(r"<h3>(.*?)</h3>", whole))


def test_workers_on_offer_are_drawn_where_they_are_not_always_all(tmp_path, whole):
  assert panels(tmp_path, offered_workers=4.5) == (["Workers on offer"], ["workers 4.5"])
  assert "Workers on offer" not in whole


def test_the_headline_counts_the_tasks_with_a_verdict(tmp_path):
  heldout = {"after_rl": {**result(0.5), "rejected": 300}}
  text, _ = read(write_report(tmp_path, {"heldout": heldout}, "", [], []))
  assert "100 tasks; the 95% interval is 45.1% to 55.1%." in text


def test_rejected_rollouts_are_drawn_as_a_share_of_all(tmp_path):
  metrics = [{"phase": "grpo", "step": i, "rejected": 0.25} for i in range(3)]
  text, _ = read(write_report(tmp_path, {}, "", metrics, []))
  assert ">share of rollouts</text>" in text and ">1.0</text>" in text


@pytest.mark.parametrize("best,words", [(0.6, "10.0 points below"), (0.5, "level with")])
def test_a_conductor_that_does_not_beat_the_best_worker_is_said_so(tmp_path, best, words):
  heldout = {"after_rl": result(0.5), "best_single_worker": result(best)}
  text, _ = read(write_report(tmp_path, {"heldout": heldout}, "", [], []))
  assert words in text


def test_the_entropy_panel_marks_equal_use_of_the_workers(whole):
  assert "all 2 workers alike" in whole


def test_worker_use_is_a_table_of_kinds_by_workers(whole):
  assert "<th scope=col>small</th><th scope=col>a/b</th>" in whole
  assert ">25%</td>" in whole and ">75%</td>" in whole


@pytest.mark.parametrize("metrics,panels", [
    ([], 0), (METRICS[:1], 2), ([{"phase": "grpo", "step": 0}], 0),
    ([{"phase": "grpo", "step": 0, "reward": None, "accuracy": 0.5}], 1)])
def test_panels_without_data_are_left_out(tmp_path, metrics, panels):
  text, _ = read(write_report(tmp_path, {}, "", metrics, []))
  assert text.count("<figure>") == panels
  assert text.count("<section>") == (panels > 0)


@pytest.mark.parametrize("summary,facts", [
    ({}, 0), ({"heldout": {}}, 0), ({"heldout": None, "seconds": None}, 0),
    ({"peak_memory_gib": math.nan, "iterations": 3}, 1),
    ({"heldout": {"random_plan": result(0.1)}}, 1)])
def test_facts_that_are_not_known_are_left_out(tmp_path, summary, facts):
  text, _ = read(write_report(tmp_path, summary, "", [], []))
  assert text.count("<dt>") == facts
  assert "headline" not in text.split("<body>")[1]


def test_text_from_models_and_tasks_is_escaped_everywhere(tmp_path):
  evil = "</pre></script><script>alert('1')</script><img src=x onerror=alert(2)>&amp;\"' $x_"
  row = rollout(
      completion=evil, answer=evil,
      task={"id": evil, "question": evil, "kind": evil, "reference": evil},
      calls=[{"worker": evil, "response": evil, "outcome": "refused", "error": evil}])
  metrics = [{"phase": "grpo", "step": i, f"accuracy/{evil}": 0.5, f"share/{evil}/{evil}": 1.0}
             for i in range(3)]
  heldout = {"after_rl": {**result(0.5), "accuracy_by_kind": {evil: 0.5}}, evil: result(0.1)}
  path = write_report(tmp_path / evil.replace("/", "_"), {"heldout": heldout}, evil, metrics, [row])
  text, parser = read(path)
  assert not parser.seen & {"script", "img", "link", "iframe"}
  assert html.escape(evil) in text
  assert "".join(parser.text).count("alert('1')") >= 10


def test_nothing_is_loaded_from_outside(whole):
  assert not re.search(r'(src|href)="(?!#)', whole)
  assert not re.search(r"@import|@font-face|url\((?!#)", whole)
  assert "default-src 'none'" in whole


def test_ids_are_unique_on_the_page(whole):
  ids = re.findall(r'\bid="(.*?)"', whole)
  assert len(ids) > 100 and len(ids) == len(set(ids))


def test_the_same_run_gives_the_same_page(tmp_path):
  arguments = (SUMMARY, "{}", METRICS[:30], [rollout()])
  first = write_report(tmp_path, *arguments).read_bytes()
  assert write_report(tmp_path, *arguments).read_bytes() == first


def test_half_a_surrogate_pair_does_not_stop_the_report(tmp_path):
  text, _ = read(write_report(tmp_path, {}, "", [], [rollout(completion="cut \ud83d")]))
  assert "cut \\ud83d" in text
