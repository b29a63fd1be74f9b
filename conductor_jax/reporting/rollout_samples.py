"""Some rollouts of an iteration, for a person to read on a page."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from conductor_jax.reporting.token_picture import Scales, scales, token_picture
from conductor_jax.reporting.workflow_graph import workflow_graph

_SAMPLES = 12


def rollout_samples(rows: Sequence[Mapping[str, Any]], workers: Sequence[str]) -> str:
  """A dozen rollouts, spread over all of them.

  Args:
    rows: as in the rollout log.
    workers: their names, by id.

  Returns:
    HTML, "" without rows.
  """
  shown = _spread(rows, _SAMPLES)
  full = scales(shown)
  return "".join(_rollout(row, workers, full) for row in shown)


def _spread(rows: Sequence[Mapping[str, Any]], count: int) -> list[Mapping[str, Any]]:
  """Up to `count` rows, evenly spaced, so that they come from different groups."""
  if len(rows) <= count:
    return list(rows)
  return [rows[i * len(rows) // count] for i in range(count)]


def _rollout(row: Mapping[str, Any], workers: Sequence[str], full: Scales) -> str:
  task, previous = row["task"], row["previous_answer"]
  answer = "no answer" if row["answer"] is None else row["answer"]
  again = "" if previous is None else "second round: "
  return (
      f'<details class="rollout"><summary>{_reward(row)} '
      f"<i>{escape(task['kind'])}</i> {again}{escape(_first_words(task['question']))}</summary>"
      f"<h4>Question <small>{escape(task['id'])}</small></h4><pre>{escape(task['question'])}</pre>"
      + _offered(row["offered"], workers)
      + ("" if previous is None else
         f"<h4>Answer of the first round</h4><pre>{escape(previous or 'no answer')}</pre>")
      + _plan(row, workers, full)
      + ("<p>The plan keeps the answer.</p>" if row["plan"] == [] else _calls(row["calls"]))
      + f"<h4>Final answer</h4><pre>{escape(answer)}</pre>"
      f"<h4>Reference</h4><pre>{escape(task['reference'])}</pre></details>")


def _reward(row: Mapping[str, Any]) -> str:
  """The reward, in the colour of what the answer alone is worth."""
  if row["reward"] is None:
    return '<span class="reward none">rejected</span>'
  outcome = row["reward_parts"]["outcome"]
  level = "high" if outcome >= 1 else "middle" if outcome > 0 else "low"
  return f'<span class="reward {level}">reward {row["reward"]:.3g}</span>'


def _offered(offered: Sequence[int], workers: Sequence[str]) -> str:
  """Which workers the plan could use, "" where these are all."""
  if len(offered) >= len(workers):
    return ""
  names = ", ".join(workers[worker] for worker in offered)
  return f"<h4>On offer</h4><pre>{escape(names)}</pre>"


def _plan(row: Mapping[str, Any], workers: Sequence[str], full: Scales) -> str:
  """The completion, and beside it the plan that it is."""
  completion = f"<h4>Completion</h4>{token_picture(row, full)}"
  if isinstance(row["plan"], str):
    return completion + f"<p>The plan does not parse: {escape(row['plan'])}</p>"
  graph = workflow_graph(row, workers, full)
  if not graph:
    return completion
  taken = any(each["removed"] for each in row.get("counterfactuals") or ())
  note = '<p class="scale">Dashed: what a counterfactual took away.</p>' if taken else ""
  return (f'<div class="beside"><div>{completion}</div><div><h4>Workflow</h4>'
          f'<div class="graph">{graph}</div>{note}</div></div>')


def _calls(calls: Sequence[Mapping[str, Any]]) -> str:
  items = "".join(
      f"<li><b>{escape(call['worker'])}</b>{escape(_unusual(call))}"
      f"<pre>{escape(call['response'])}</pre></li>" for call in calls)
  return f'<h4>Worker answers</h4><ol start="0">{items}</ol>' if items else ""


def _unusual(call: Mapping[str, Any]) -> str:
  """What became of a call, "" where it was answered."""
  if call["outcome"] == "answered":
    return ""
  return f" ({call['outcome']}{': ' + call['error'] if call['error'] else ''})"


def _first_words(text: str, limit: int = 90) -> str:
  text = " ".join(text.split())
  return text if len(text) <= limit else text[:limit].rsplit(" ", 1)[0] + " …"
