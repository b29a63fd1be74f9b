"""A completion as a picture: what its tokens are trained towards, and what its fields are worth."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

_QUOTED = 60  # characters of a field, where it is listed


@dataclass(frozen=True)
class Scales:
  """What has the full colour, alike in all rollouts of a page, so that these can be compared.

  Attributes:
    advantage: the largest absolute one, 0 where there is none.
    delta: likewise, of the counterfactuals.
  """

  advantage: float
  delta: float


def scales(rows: Iterable[Mapping[str, Any]]) -> Scales:
  """The scales of some rows of the rollout log."""
  rows = list(rows)
  return Scales(
      max((abs(each) for row in rows for each in row.get("advantages") or () if each is not None),
          default=0.0),
      max((abs(each["delta"]) for row in rows for each in row.get("counterfactuals") or ()
           if each["delta"] is not None), default=0.0))


def signed(value: float) -> str:
  """A number with its sign, 0 without one."""
  return f"{value:+.3g}".replace("-", "−") if value else "0"


def worth(delta: float | None) -> str:
  """What a counterfactual changed, in words."""
  return "no verdict" if delta is None else f"Δ {signed(delta)}"


def tint(value: float | None, full: float, *classes: str) -> str:
  """Attributes that colour an element by a number, not at all at 0.

  Args:
    value: the number, None where there is none.
    full: what has the full colour.
    classes: others of the element.
  """
  sign = ("wanted" if value > 0 else "unwanted",) if value else ()
  share = f' style="--share:{100 * abs(value) / full:.0f}%"' if value else ""
  names = " ".join((*sign, *classes))
  return (f' class="{names}"' if names else "") + share


def token_picture(row: Mapping[str, Any], full: Scales) -> str:
  """The completion of a rollout, each token in the colour of its advantage, mutated fields marked.

  Takes time linear in the completion's length. The text of the box is the completion's own.

  Args:
    row: of the rollout log. Logs of older runs, and rollouts that are not trained on, lack what is
      shown here: then it is the completion alone.
    full: from `scales`.

  Returns:
    HTML: the text in a box, a legend, and a list of the fields.
  """
  fields = _fields(row.get("counterfactuals") or ())
  tokens = _tokens(row)
  if not tokens and not fields:
    return f"<pre>{escape(row['completion'])}</pre>"
  pieces = "".join(_pieces(row["completion"], tokens, list(fields), full.advantage))
  # Not a <pre>, which would lose a newline at its beginning.
  return (f'<div class="tokens">{pieces}</div>' + (_legend(full.advantage) if tokens else "")
          + _list(row["completion"], fields, full.delta))


@dataclass(frozen=True)
class _Token:
  """Tokens that begin at one character, and what each is trained towards."""

  start: int
  advantages: tuple[float | None, ...]

  @property
  def words(self) -> str:
    """The advantages, each once."""
    return ", ".join(dict.fromkeys(
        "none" if each is None else signed(each) for each in self.advantages))


def _tokens(row: Mapping[str, Any]) -> list[_Token]:
  """Of each beginning its tokens, neighbours of the same advantage as one."""
  starts, advantages = row.get("token_starts"), row.get("advantages")
  if not starts or not advantages or all(each is None for each in advantages):
    return []
  together: dict[int, list[float | None]] = {}
  for start, advantage in zip(starts, advantages, strict=True):
    together.setdefault(start, []).append(advantage)
  merged: list[_Token] = []
  for start, found in together.items():
    token = _Token(start, tuple(found))
    # What ends the completion has no text, and an element of its own.
    if not merged or start == len(row["completion"]) or token.words != merged[-1].words:
      merged.append(token)
  return merged


def _fields(
    counterfactuals: Sequence[Mapping[str, Any]]
) -> dict[tuple[int, int], list[Mapping[str, Any]]]:
  """The counterfactuals of each field, by its span, in the order of the text."""
  fields: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
  for each in sorted(counterfactuals, key=lambda each: each["span"]):
    fields.setdefault(tuple(each["span"]), []).append(each)
  return fields


def _pieces(
    text: str, tokens: Sequence[_Token], spans: Sequence[tuple[int, int]], full: float
) -> Iterator[str]:
  """The text, split wherever a token or a field begins or ends."""
  begin: dict[int, int] = {}
  end: dict[int, list[int]] = {}
  for number, span in enumerate(spans, 1):
    begin[span[0]] = begin.get(span[0], 0) + 1
    end.setdefault(span[1], []).append(number)
  by_start = {token.start: token for token in tokens}
  cuts = sorted({0, len(text), *by_start, *begin, *end})
  token, open_fields = None, 0
  for start, stop in zip(cuts, [*cuts[1:], len(text)], strict=True):
    open_fields += begin.get(start, 0) - len(end.get(start, ()))
    # Numbers stand beside the text as style, so that they are not selected with it.
    for number in end.get(start, ()):
      yield f'<sup data-field="{number}"></sup>'
    token = by_start.get(start, token)
    if start < stop:
      yield _piece(text[start:stop], token, open_fields, full)
  if len(text) in by_start:
    token = by_start[len(text)]
    yield (f"<span{tint(token.advantages[0], full, 'end')} "
           f'title="advantage {token.words}, of the end"></span>')


def _piece(text: str, token: _Token | None, fields: int, full: float) -> str:
  # A carriage return as such would be read as a newline.
  text = escape(text).replace("\r", "&#13;")
  advantage = token.advantages[0] if token else None
  title = f' title="advantage {token.words}"' if token and token.words != "none" else ""
  attributes = tint(advantage, full, *["field", "several"][:min(fields, 2)]) + title
  return f"<span{attributes}>{text}</span>" if attributes else text


def _legend(full: float) -> str:
  if not full:
    return '<p class="scale">Every advantage is 0.</p>'
  return (f'<p class="scale">Advantage: <span>{signed(-full)} unwanted</span><i></i>'
          f"<span>wanted {signed(full)}</span></p>")


def _list(
    text: str, fields: Mapping[tuple[int, int], Sequence[Mapping[str, Any]]], full: float) -> str:
  """What was taken back of each field, and what that changed."""
  items = "".join(
      f"<li><code>{escape(_quoted(text[start:end]))}</code> "
      + " ".join(_mutation(each, full) for each in found) + "</li>"
      for (start, end), found in fields.items())
  colour = f"; full colour at ±{full:.3g}" if full else ""
  return (f'<ol class="fields">{items}</ol><p class="scale">Δ: the reward less that of the plan '
          f"without the field{colour}.</p>") if items else ""


def _mutation(found: Mapping[str, Any], full: float) -> str:
  earlier = ", ".join(map(str, found["removed"]))
  return (f"<span{tint(found['delta'], full, 'delta')}>{escape(found['family'])} of step "
          f"{found['step']}{' on ' * bool(earlier)}{earlier}: {worth(found['delta'])}</span>")


def _quoted(text: str) -> str:
  text = " ".join(text.split())
  return text if len(text) <= _QUOTED else text[:_QUOTED].rstrip() + "…"
