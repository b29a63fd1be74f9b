"""report.html: one page on a run that needs nothing beside it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from conductor_jax.reporting.metrics import atomic_file
from conductor_jax.reporting.page import page, section, table
from conductor_jax.reporting.plots import Curves, Plot, curves, smoothing_window, stacked_seconds
from conductor_jax.reporting.progress import comparison, heading
from conductor_jax.reporting.spending import spending_table

_SAMPLES = 12

_REWARD = Curves(
    "reward", "Reward and accuracy", "mean over rollouts",
    {"reward": "reward", "accuracy": "accuracy"}, share=True,
    note="Accuracy is the share of right answers among the training rollouts.")
_PARSING = Curves(
    "parsing", "Parsing and correctness", "share",
    {"parse_rate": "plans that parse", "correct_given_parsed": "correct given parsed"}, share=True,
    note="Only the second curve says that plans got better, not just well-formed.")
_STEPS = Curves("steps", "Steps per plan", "steps", {"steps_per_plan": "steps"}, from_zero=True)
_ACCESS = Curves(
    "access", "Open access lists", "share of later steps", {"access_density": "open"}, share=True,
    note="Of the steps after a plan's first: how many see an earlier answer.")
_WORKERS = Curves(
    "workers", "Worker entropy", "bits", {"worker_entropy_bits": "worker entropy"}, from_zero=True,
    note="Of the workers called: 0 is always the same one.")
_MORE = (
    Curves("tokens", "Policy entropy", "nats per token", {"entropy": "entropy"}, from_zero=True),
    Curves("length", "Completion length", "tokens", {"completion_tokens": "tokens"},
           from_zero=True),
    Curves("groups", "Groups without a gradient", "share of groups",
           {"zero_variance_groups": "equal rewards"}, share=True,
           note="All rollouts of the group got the same reward."),
    Curves("rejected", "Rejected rollouts", "share of rollouts", {"rejected": "rejected"},
           share=True, note="Endpoint or grader failed; masked out of the loss."),
    Curves("loss", "Policy loss", "loss", {"loss": "loss"}),
    Curves("kl", "Divergence and sampler mismatch", "nats",
           {"kl": "KL", "logprob_gap_mean": "mean |Δ log p|", "logprob_gap_max": "max |Δ log p|"},
           log=True, note="Δ log p: the trainer's log-probability less the sampler's."),
    Curves("usage", "Worker tokens", "tokens per rollout", {"worker_tokens": "tokens"},
           from_zero=True, note="Read and written by the workers."),
    Curves("gradient", "Gradient norm", "norm", {"grad_norm": "gradient norm"}, from_zero=True),
    Curves("clipping", "Clipped tokens", "share of tokens",
           {"clip_fraction": "all", "clip_fraction_low": "below", "clip_fraction_high": "above"},
           from_zero=True, note="A bound on the likelihood ratio takes their gradient."),
    Curves("sampler", "Divergence from the sampler", "nats", {"kl_to_sampler": "KL"}, log=True,
           note="Of the policy that sampled the completions, as training sees it."),
    Curves("rollouts", "Time of a group of rollouts", "seconds",
           {"seconds_sampling": "sampling", "seconds_executing": "executing"}, from_zero=True,
           note="A mean; groups overlap each other and, if they may, the training step."),
    Curves("staleness", "Age of the rollouts", "updates",
           {"staleness": "mean", "staleness_max": "oldest"}, from_zero=True,
           note="Updates made since the oldest weights that wrote a group."),
    Curves("speed", "Training speed", "tokens per second", {"tokens_per_second": "tokens"},
           from_zero=True, note="Of the training step alone; padding does not count."),
)
_SFT = (
    Curves("sft-loss", "Warm-start loss", "nats per token", {"loss": "loss"}, from_zero=True),
    Curves("sft-gradient", "Warm-start gradient norm", "norm", {"grad_norm": "gradient norm"},
           from_zero=True),
)
_SECONDS = {"seconds_waiting": "waiting for rollouts", "seconds_training": "training",
            "seconds_publishing": "handing over weights"}


def write_report(
    workdir: str | Path, summary: Mapping[str, Any], config_text: str,
    metrics: Sequence[Mapping[str, Any]], rollouts: Sequence[Mapping[str, Any]],
) -> Path:
  """Writes report.html. What has no data is left out.

  Args:
    workdir: the work directory.
    summary: what summary.json holds: "seconds", "iterations", "peak_memory_gib", "heldout" and
      "spending".
    config_text: the configuration as shown at the end.
    metrics: the lines of metrics.jsonl.
    rollouts: rows of the last iteration, as in the rollout log.

  Returns:
    The file's path.
  """
  workdir = Path(workdir)
  heldout = summary.get("heldout") or {}
  training = [record for record in metrics if record["phase"] == "grpo"]
  warm_start = [record for record in metrics if record["phase"] == "sft"]
  sections = [
      _headline(heldout),
      _facts(summary, heldout),
      section("Held-out tasks", _comparison_table(heldout) if heldout else ""),
      section("Learning curves", _panels(_training_plots(training), len(training), "iteration")),
      section("Which worker is called", _worker_table(training)),
      section("What the workers were paid", spending_table(summary.get("spending") or {})),
      section("Warm start", _panels((curves(panel, warm_start, "step") for panel in _SFT),
                                    len(warm_start), "step")),
      section("Sample rollouts of the last iteration",
              "".join(_rollout(row) for row in _spread(rollouts, _SAMPLES))),
      section("Configuration", f"<pre>{escape(config_text)}</pre>" if config_text else ""),
  ]
  path = workdir / "report.html"
  with atomic_file(path) as file:
    text = page(workdir.resolve().name, "training report", sections)
    # A completion may hold half of a surrogate pair, which UTF-8 cannot.
    file.write(text.encode("utf-8", "backslashreplace"))
  return path


def _headline(heldout: Mapping[str, Mapping[str, Any]]) -> str:
  """Accuracy before and after, and a sentence that compares it with the best single worker."""
  accuracy = {name: result["accuracy"] for name, result in heldout.items()
              if _known(result.get("accuracy"))}
  if "after_rl" not in accuracy:
    return ""
  after = accuracy["after_rl"]
  numbers = f"<strong>{after:.1%}</strong>"
  if "before_rl" in accuracy:
    numbers = f"{accuracy['before_rl']:.1%} → {numbers}"
  sentences = []
  if "best_single_worker" in accuracy:
    best = accuracy["best_single_worker"]
    points = 100 * (after - best)
    place = ("level with" if abs(points) < 0.05
             else f"{abs(points):.1f} points {'above' if points > 0 else 'below'}")
    sentences.append(f"After training: {place} the best single worker ({best:.1%}).")
  # The accuracy is over the tasks with a verdict.
  tasks = heldout["after_rl"]["tasks"] - heldout["after_rl"]["rejected"]
  low, high = heldout["after_rl"]["accuracy_interval"]
  sentences.append(f"{tasks:,.0f} tasks; the 95% interval is {low:.1%} to {high:.1%}.")
  return (f'<p class="headline">{numbers}<span>held-out accuracy</span></p>'
          f'<p class="lead">{" ".join(sentences)}</p>')


def _facts(summary: Mapping[str, Any], heldout: Mapping[str, Any]) -> str:
  facts = []
  for name in ("best_single_worker", "random_plan"):
    if _known(heldout.get(name, {}).get("accuracy")):
      facts.append((heading(name), f"{heldout[name]['accuracy']:.1%}"))
  for key, label, form in (("iterations", "iterations", "{:,.0f}"), ("seconds", "time", None),
                           ("peak_memory_gib", "peak memory", "{:.1f} GiB")):
    if _known(summary.get(key)):
      facts.append((label, form.format(summary[key]) if form else _duration(summary[key])))
  return '<dl class="facts">' + "".join(
      f"<div><dt>{escape(label)}</dt><dd>{escape(value)}</dd></div>" for label, value in facts
  ) + "</dl>" if facts else ""


def _duration(seconds: float) -> str:
  if seconds < 120:
    return f"{seconds:.0f} s"
  minutes = round(seconds / 60)
  return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _comparison_table(heldout: Mapping[str, Mapping[str, Any]]) -> str:
  headings, rows = comparison(heldout)
  body = []
  for label, *cells in rows:
    # The row that counts stands out, those that break it down are indented.
    kind = ' class="kind"' if label.startswith(" ") else ""
    kind = ' class="main"' if label == "accuracy" else kind
    body.append([f"<th scope=row{kind}>{escape(label.strip())}</th>",
                 *(f"<td{kind}>{escape(cell)}</td>" for cell in cells)])
  return table(headings, body)


def _training_plots(records: Sequence[Mapping[str, Any]]) -> Iterable[Plot | None]:
  kinds = sorted({key.split("/", 1)[1] for record in records for key in record
                  if key.startswith("accuracy/")})
  workers = _worker_names(records)
  most = ((f"all {len(workers)} workers alike", math.log2(len(workers)))
          if len(workers) > 1 else None)
  by_kind = Curves("kinds", "Accuracy by kind of task", "accuracy",
                   {f"accuracy/{kind}": kind for kind in kinds}, share=True)
  yield curves(_REWARD, records, "iteration")
  yield curves(by_kind, records, "iteration")
  yield curves(_PARSING, records, "iteration")
  yield curves(_STEPS, records, "iteration")
  yield curves(_ACCESS, records, "iteration")
  yield curves(_WORKERS, records, "iteration", level=most)
  for panel in _MORE:
    yield curves(panel, records, "iteration")
  yield stacked_seconds("seconds", "Time per iteration", records, _SECONDS, "iteration")


def _panels(plots: Iterable[Plot | None], steps: int, x_label: str) -> str:
  figures = []
  for plot in plots:
    if plot is None:
      continue
    legend = "".join(
        f'<li><svg viewBox="0 0 26 8" aria-hidden="true"><path d="M0 4H26" stroke-width="3" '
        f'stroke="var({entry.colour})" stroke-dasharray="{entry.dash}"/></svg>'
        f"{escape(entry.label)}</li>" for entry in plot.legend)
    figures.append(f"<figure><figcaption><h3>{escape(plot.title)}</h3><ul>{legend}</ul>"
                   f"</figcaption>{plot.svg}<p>{escape(plot.note)}</p></figure>")
  window = smoothing_window(steps)
  legend = f"Faint: each {x_label}. Bold: mean over {window} {x_label}s. " if window > 1 else ""
  return (f"<p>{legend}Beside each name: first → last value of its line.</p>"
          f'<div class="panels">{"".join(figures)}</div>') if figures else ""


def _worker_names(records: Sequence[Mapping[str, Any]]) -> list[str]:
  """Every worker that a `share/<kind>/<worker>` metric names, in order of appearance."""
  return list(dict.fromkeys(key.split("/", 2)[2] for record in records for key in record
                            if key.startswith("share/")))


def _worker_table(records: Sequence[Mapping[str, Any]]) -> str:
  """Worker use by kind of task, averaged over the last iterations, as a heatmap."""
  last = records[-max(1, smoothing_window(len(records))):]
  shares: dict[str, dict[str, list[float]]] = {}
  for record in last:
    for key, value in record.items():
      if key.startswith("share/") and _known(value):
        _, kind, worker = key.split("/", 2)
        shares.setdefault(kind, {}).setdefault(worker, []).append(value)
  if not shares:
    return ""
  workers = _worker_names(records)
  rows = []
  for kind in sorted(shares):
    cells = [f"<th scope=row>{escape(kind)}</th>"]
    for worker in workers:
      values = shares[kind].get(worker, [0.0])
      share = sum(values) / len(values)
      # At most 55% of the colour, so that the figure on it stays readable.
      cells.append(f'<td class="heat" style="--share:{55 * share:.1f}%">{share:.0%}</td>')
    rows.append(cells)
  span = "the last iteration" if len(last) == 1 else f"the last {len(last)} iterations"
  return f"<p>Share of the calls of each kind of task, mean over {span}.</p>" + table(
      ["", *workers], rows)


def _spread(rows: Sequence[Mapping[str, Any]], count: int) -> list[Mapping[str, Any]]:
  """Up to `count` rows, evenly spaced, so that they come from different groups."""
  if len(rows) <= count:
    return list(rows)
  return [rows[i * len(rows) // count] for i in range(count)]


def _rollout(row: Mapping[str, Any]) -> str:
  task, reward = row["task"], row["reward"]
  verdict = "rejected" if reward is None else f"reward {reward:g}"
  level = "none" if reward is None else "high" if reward >= 1 else "middle" if reward > 0 else "low"
  answer = "no answer" if row["answer"] is None else row["answer"]
  calls = "".join(
      f"<li><b>{escape(call['worker'])}</b>{escape(_unusual(call))}"
      f"<pre>{escape(call['response'])}</pre></li>" for call in row["calls"])
  return (
      f'<details class="rollout"><summary><span class="reward {level}">{verdict}</span> '
      f"<i>{escape(task['kind'])}</i> {escape(_first_words(task['question']))}</summary>"
      f"<h4>Question <small>{escape(task['id'])}</small></h4><pre>{escape(task['question'])}</pre>"
      f"<h4>Completion</h4><pre>{escape(row['completion'])}</pre>"
      + (f"<h4>Worker answers</h4><ol>{calls}</ol>" if calls else "")
      + f"<h4>Final answer</h4><pre>{escape(answer)}</pre>"
      f"<h4>Reference</h4><pre>{escape(task['reference'])}</pre></details>")


def _unusual(call: Mapping[str, Any]) -> str:
  """What became of a call, "" where it was answered."""
  if call["outcome"] == "answered":
    return ""
  return f" ({call['outcome']}{': ' + call['error'] if call['error'] else ''})"


def _first_words(text: str, limit: int = 90) -> str:
  text = " ".join(text.split())
  return text if len(text) <= limit else text[:limit].rsplit(" ", 1)[0] + " …"


def _known(value: Any) -> bool:
  return value is not None and math.isfinite(value)
