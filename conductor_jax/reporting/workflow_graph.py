"""A plan as a graph: its steps from left to right, and an arrow for every answer that is seen."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from conductor_jax.reporting.token_picture import Scales, tint, worth

# Pixels.
_WIDTH, _HEIGHT = 172, 66
_LANE = 16  # the height that an arrow has to itself, where it passes other steps
_APART = 16  # from one step or lane to the next below
_GAP, _LABELLED_GAP = 46, 92  # between columns, without and with a Δ in it
_MARGIN = 12
_HEAD = 7
_LINE = 15
# Columns of text, of half the width of a Chinese character.
_NAME, _SUBTASK, _SUBTASK_LINES = 19, 26, 2

_BEFORE = -1  # stands for the round before, among the steps


@dataclass
class _Arrow:
  """An answer that is seen.

  Attributes:
    source, target: the step that gave it, and the one that sees it.
    taken: the counterfactuals that took it away.
    label: what they changed, "" where another arrow says so.
    ys: where it passes: the source, lanes between columns, its place at the target.
  """

  source: int
  target: int
  taken: list[Mapping[str, Any]] = field(default_factory=list)
  label: str = ""
  ys: list[float] = field(default_factory=list)

  @property
  def delta(self) -> float | None:
    """Of the first that has one."""
    return next((each["delta"] for each in self.taken if each["delta"] is not None), None)


def workflow_graph(row: Mapping[str, Any], workers: Sequence[str], full: Scales) -> str:
  """The graph of a rollout's plan.

  Steps are counted from 0, as in plans. Each stands in the column after those that it sees. A
  dashed arrow is one that a counterfactual took away, in the colour of what that changed.

  Args:
    row: of the rollout log.
    workers: their names, by id, for plans that did not run.
    full: from `scales`.

  Returns:
    An `<svg>`, "" where no plan parsed or it has no steps.
  """
  plan = row["plan"]
  if isinstance(plan, str) or not plan:
    return ""
  arrows = _arrows(plan, row.get("counterfactuals") or ())
  columns = _columns(len(plan), arrows)
  centres, height = _place(columns, arrows)
  lefts, width = _lefts(columns, arrows)
  nodes = "".join(
      _before(lefts[column], centres[step]) if step == _BEFORE else
      _node(step, plan[step], _name(row, workers, step), lefts[column], centres[step],
            last=step == len(plan) - 1)
      for step, column in columns.items())
  # All lines first: nothing is to cross a step or a number.
  lines = "".join(_line(arrow, lefts, columns, full) for arrow in arrows)
  return (f'<svg width="{width}" height="{height:.0f}" role="img" '
          f'aria-label="{escape(_described(plan))}">{lines}{_labels(arrows, lefts, columns)}'
          f"{nodes}</svg>")


def _described(plan: Sequence[Mapping[str, Any]]) -> str:
  seen = [f"{index} sees {', '.join(map(str, _sees(step)))}"
          for index, step in enumerate(plan) if _sees(step)]
  steps = "1 step" if len(plan) == 1 else f"{len(plan)} steps"
  return "; ".join([f"Workflow of {steps}", *seen])


def _sees(step: Mapping[str, Any]) -> Sequence[int]:
  return step.get("sees", ())


def _name(row: Mapping[str, Any], workers: Sequence[str], step: int) -> str:
  """Of a step's worker; the calls know it best, since a page need not have the whole pool."""
  if len(row["calls"]) == len(row["plan"]):
    return row["calls"][step]["worker"]
  worker = row["plan"][step]["worker"]
  return workers[worker] if worker < len(workers) else f"worker {worker}"


def _arrows(
    plan: Sequence[Mapping[str, Any]], counterfactuals: Sequence[Mapping[str, Any]]
) -> list[_Arrow]:
  arrows = {}
  for target, step in enumerate(plan):
    before = [_BEFORE] if step.get("sees_previous") else []
    arrows |= {(source, target): _Arrow(source, target) for source in (*before, *_sees(step))}
  for each in counterfactuals:
    for source in each["removed"]:
      arrows.setdefault((source, each["step"]), _Arrow(source, each["step"])).taken.append(each)
    if each["removed"]:
      # One number for what was taken together.
      labelled = arrows[each["removed"][len(each["removed"]) // 2], each["step"]]
      labelled.label = "; ".join(filter(None, (labelled.label, worth(each["delta"]))))
  return sorted(arrows.values(), key=lambda arrow: (arrow.target, arrow.source))


def _columns(steps: int, arrows: Sequence[_Arrow]) -> dict[int, int]:
  """The column of each step, after all that it sees."""
  columns = {_BEFORE: 0} if any(arrow.source == _BEFORE for arrow in arrows) else {}
  for step in range(steps):
    columns[step] = max((columns[arrow.source] + 1 for arrow in arrows if arrow.target == step),
                        default=0)
  return columns


def _place(
    columns: Mapping[int, int], arrows: Sequence[_Arrow]) -> tuple[dict[int, float], float]:
  """The centres of steps, and the height of all; fills the arrows' `ys`.

  A column is sorted by where its arrows come from. An arrow that passes it has a lane there.
  """
  stacks = []
  for column in range(max(columns.values()) + 1):
    steps = [step for step, own in columns.items() if own == column]
    lanes = [arrow for arrow in arrows
             if columns[arrow.source] < column < columns[arrow.target]]
    stacks.append((steps, lanes))
  heights = [len(steps) * (_HEIGHT + _APART) + len(lanes) * (_LANE + _APART) - _APART
             for steps, lanes in stacks]
  centres: dict[int, float] = {}
  for (steps, lanes), own in zip(stacks, heights, strict=True):
    incoming = {step: [arrow for arrow in arrows if arrow.target == step] for step in steps}
    middles = {step: [arrow.ys[-1] for arrow in found] for step, found in incoming.items()}
    # What to sort by, the height, and whose centre it is.
    items = [(sum(ys) / len(ys) if ys else 0, _HEIGHT, step) for step, ys in middles.items()]
    items += [(arrow.ys[-1], _LANE, arrow) for arrow in lanes]
    y = _MARGIN + (max(heights) - own) / 2
    for _, height, item in sorted(items, key=lambda item: item[0]):
      if isinstance(item, _Arrow):
        item.ys.append(y + height / 2)
      else:
        centres[item] = y + height / 2
      y += height + _APART
    for step, found in incoming.items():
      _arrive(found, centres[step])
    for arrow in arrows:
      if arrow.source in steps:
        arrow.ys.append(centres[arrow.source])
  return centres, max(heights) + 2 * _MARGIN


def _arrive(arrows: Sequence[_Arrow], centre: float) -> None:
  """Spreads the ends of arrows over the side of a step, in the order in which they come."""
  distance = min(_LANE, (_HEIGHT - 14) / max(len(arrows) - 1, 1))
  for place, arrow in enumerate(sorted(arrows, key=lambda arrow: arrow.ys[-1])):
    arrow.ys.append(centre + distance * (place - (len(arrows) - 1) / 2))


def _lefts(
    columns: Mapping[int, int], arrows: Sequence[_Arrow]) -> tuple[list[int], int]:
  """Where columns begin, and the width of all."""
  labelled = {columns[arrow.target] for arrow in arrows if arrow.label}
  lefts = [_MARGIN]
  for column in range(1, max(columns.values()) + 1):
    lefts.append(lefts[-1] + _WIDTH + (_LABELLED_GAP if column in labelled else _GAP))
  return lefts, lefts[-1] + _WIDTH + _MARGIN


def _line(
    arrow: _Arrow, lefts: Sequence[int], columns: Mapping[int, int], full: Scales) -> str:
  """An arrow from the right side of its source to the left one of its target."""
  first = columns[arrow.source]
  path = f"M{lefts[first] + _WIDTH} {arrow.ys[0]:.1f}"
  for place, (y, later) in enumerate(zip(arrow.ys, arrow.ys[1:], strict=False), first):
    start, end = lefts[place] + _WIDTH, lefts[place + 1]
    if place + 1 == columns[arrow.target]:
      end -= _HEAD - 1
    middle = (start + end) / 2
    path += f"C{middle:.1f} {y:.1f} {middle:.1f} {later:.1f} {end} {later:.1f}"
    if place + 1 < columns[arrow.target]:
      path += f"H{lefts[place + 1] + _WIDTH}"
  tip, y = lefts[columns[arrow.target]], arrow.ys[-1]
  head = f"M{tip} {y:.1f}l{-_HEAD} -4v8z"
  taken = "".join(f"; without {', '.join(map(str, each['removed']))}: {worth(each['delta'])}"
                  for each in arrow.taken)
  source = "the round before" if arrow.source == _BEFORE else f"step {arrow.source}"
  classes = ("arrow", "taken") if arrow.taken else ("arrow",)
  return (f"<g{tint(arrow.delta, full.delta, *classes)}>"
          f"<title>step {arrow.target} sees {source}{taken}</title>"
          f'<path d="{path}"/><path class="head" d="{head}"/></g>')


def _labels(arrows: Sequence[_Arrow], lefts: Sequence[int], columns: Mapping[int, int]) -> str:
  """The Δ in the middle of each arrow's last bow, moved down where they would overlap."""
  texts, free = [], {}
  for arrow in sorted(arrows, key=lambda arrow: arrow.ys[-2] + arrow.ys[-1]):
    if arrow.label:
      left = lefts[columns[arrow.target]]
      middle = (lefts[columns[arrow.target] - 1] + _WIDTH + left - _HEAD) / 2
      y = max((arrow.ys[-2] + arrow.ys[-1]) / 2 + 4, free.get(left, 0))
      free[left] = y + _LINE
      texts.append(f'<text class="delta" x="{middle:.1f}" y="{y:.1f}">{arrow.label}</text>')
  return "".join(texts)


def _before(left: int, centre: float) -> str:
  return (f'<g class="step before"><rect x="{left}" y="{centre - _HEIGHT / 2:.1f}" '
          f'width="{_WIDTH}" height="{_HEIGHT}" rx="7"/>'
          f'<text x="{left + 10}" y="{centre + 4:.1f}">answer of round before</text></g>')


def _node(
    index: int, step: Mapping[str, Any], worker: str, left: int, centre: float, *, last: bool
) -> str:
  """A step: number and worker, and the beginning of the subtask."""
  subtask = step.get("subtask", "")
  name, = _lines(worker, _NAME, 1) or [""]
  texts = f'<text class="worker" x="10" y="20"><tspan>{index}</tspan> {escape(name)}</text>'
  for line, words in enumerate(_lines(subtask, _SUBTASK, _SUBTASK_LINES)):
    texts += f'<text x="10" y="{38 + _LINE * line}">{escape(words)}</text>'
  top = centre - _HEIGHT / 2
  mark = (f'<rect class="mark" x="{left + _WIDTH - 62}" y="{top - 9:.1f}" width="54" height="17" '
          f'rx="8"/><text class="mark" x="{left + _WIDTH - 35}" y="{top + 3.5:.1f}">answer</text>'
          ) if last else ""
  # The inner element cuts what a wider font than usual makes too long.
  return (f'<g class="step{" last" if last else ""}">'
          f"<title>step {index}, {escape(worker)}: {escape(subtask)}</title>"
          f'<rect x="{left}" y="{top:.1f}" width="{_WIDTH}" height="{_HEIGHT}" rx="7"/>'
          f'<svg x="{left}" y="{top:.1f}" width="{_WIDTH - 4}" height="{_HEIGHT}">{texts}</svg>'
          f"{mark}</g>")


def _lines(text: str, columns: int, count: int) -> list[str]:
  """The beginning of a text in some lines, with an ellipsis where it goes on."""
  rest, lines = " ".join(text.split()), []
  while rest and len(lines) < count:
    whole = _fitting(rest, columns)
    if whole == len(rest):
      return [*lines, rest]
    if len(lines) == count - 1:
      return [*lines, rest[:_fitting(rest, columns - 1)].rstrip() + "…"]
    # Within a word only if it fills more than half of the line.
    cut = rest.rfind(" ", columns // 2, whole + 1)
    cut = whole if cut < 0 else cut
    lines.append(rest[:cut].rstrip())
    rest = rest[cut:].lstrip()
  return lines


def _fitting(text: str, columns: int) -> int:
  """How many characters of a text fit."""
  for place, character in enumerate(text):
    columns -= 2 if unicodedata.east_asian_width(character) in "WF" else 1
    if columns < 0:
      return place
  return len(text)
