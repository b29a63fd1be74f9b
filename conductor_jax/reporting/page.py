"""The frame of a page: style, skeleton and tables, nothing loaded from outside."""

from collections.abc import Iterable, Sequence
from html import escape

# Series colours start from Okabe and Ito's. Each has a contrast of 3 or more with its ground, and
# any two differ by 15 or more in CIELAB, also as seen with each kind of colour blindness.
_STYLE = """
:root {
  color-scheme: light dark;
  --ground: #fff; --raised: #f5f6f7; --ink: #1d2125; --quiet: #59626b; --grid: #d5d9dd;
  --series-0: #0072b2; --series-1: #d55e00; --series-2: #00966c; --series-3: #7d2a68;
  --series-4: #c773a8; --series-5: #5c4400; --series-6: #111;
  --high: #d6efe4; --middle: #fbeccb; --low: #f8dcd0; --none: #e4e7ea;
  --wanted: #6db1e2; --unwanted: #ef9558;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #14171a; --raised: #1d2125; --ink: #e4e7ea; --quiet: #a0a9b2; --grid: #3a4148;
    --series-0: #56b4e9; --series-1: #e8702a; --series-2: #22a85c; --series-3: #f5a0c8;
    --series-4: #f0e442; --series-5: #8f68ee; --series-6: #fff;
    --high: #12402f; --middle: #4a3a10; --low: #52261a; --none: #343a40;
    --wanted: #0b5c93; --unwanted: #94420f;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 1180px; padding: 1.5rem 1rem 4rem;
  background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
h1 { font-size: 1rem; font-weight: 600; color: var(--quiet); margin: 0 0 .5rem;
  overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .75rem; }
h3 { font-size: 1rem; margin: 0; }
h4 { font-size: .85rem; margin: 1rem 0 .25rem; color: var(--quiet); }
small { font-weight: 400; }
.headline { font-size: clamp(2rem, 8vw, 3.2rem); line-height: 1.1; margin: 0;
  font-variant-numeric: tabular-nums; }
.headline span { display: block; font-size: 1rem; color: var(--quiet); margin-top: .4rem; }
.lead { margin: .25rem 0 0; }
.warnings { list-style: none; margin: 0; padding: 0; display: grid; gap: .5rem; }
.warnings li { background: var(--middle); border-radius: .4rem; padding: .5rem .8rem; }
.facts { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.25rem 0 0; }
.facts div { background: var(--raised); border-radius: .5rem; padding: .5rem .9rem; }
dt { font-size: .85rem; color: var(--quiet); }
dd { margin: 0; font-size: 1.15rem; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .8rem; text-align: right; border-bottom: 1px solid var(--grid); }
td { white-space: nowrap; } td small { display: block; }
thead th { vertical-align: bottom; font-size: .9rem; }
th[scope=row] { text-align: left; font-weight: 400; position: sticky; left: 0; min-width: 7rem;
  background: var(--ground); }
th.kind { padding-left: 2rem; color: var(--quiet); }
th[scope=row].main, td.main { font-weight: 600; }
.heat { background: color-mix(in srgb, var(--series-0) var(--share), var(--ground)); }
td.up { background: var(--high); } td.down { background: var(--low); }
figure.broad { max-width: 56rem; display: block; overflow-x: auto; }
figure.broad > svg { min-width: 38rem; }
.panels { display: grid; column-gap: 2.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
figure { margin: 0 0 2rem; max-width: 34rem; min-width: 0;
  display: grid; grid-row: span 3; grid-template-rows: subgrid; }
figure > svg { display: block; width: 100%; height: auto; }
figure > svg * { stroke-linejoin: round; stroke-linecap: butt; }
figure p { font-size: .85rem; color: var(--quiet); margin: .25rem 0 0; }
figcaption ul { list-style: none; display: flex; flex-wrap: wrap; gap: 0 1.1rem; padding: 0;
  margin: .15rem 0 .35rem; font-size: .85rem; font-variant-numeric: tabular-nums; }
figcaption li svg { width: 26px; height: 8px; margin-right: .4rem; }
pre, .tokens { background: var(--raised); border-radius: .4rem; padding: .6rem .8rem; margin: 0;
  font: .85rem/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
  white-space: pre-wrap; overflow-wrap: anywhere; }
.rollout { border-bottom: 1px solid var(--grid); padding: .5rem 0; }
.rollout ol { margin: 0; padding-left: 1.4rem; }
summary { cursor: pointer; overflow-wrap: anywhere; }
@media (max-width: 40rem) {
  th, td { padding: .3rem .4rem; font-size: .85rem; }
  th.kind { padding-left: 1.2rem; }
}
.reward { border-radius: .3rem; padding: .05rem .45rem; font-size: .85rem; white-space: nowrap; }
.high { background: var(--high); } .middle { background: var(--middle); }
.low { background: var(--low); } .none { background: var(--none); }
.beside { display: flex; flex-wrap: wrap; gap: 0 1.5rem; align-items: flex-start; }
.beside > div { flex: 1 1 24rem; min-width: 0; }
.beside > div + div { flex: 0 1 auto; max-width: 100%; }
.tokens { background: var(--ground); box-shadow: inset 0 0 0 1px var(--grid); line-height: 1.7; }
.tokens span, .delta { border-radius: .15rem; }
.tokens .wanted, .fields .wanted {
  background: color-mix(in srgb, var(--wanted) var(--share), var(--ground)); }
.tokens .unwanted, .fields .unwanted {
  background: color-mix(in srgb, var(--unwanted) var(--share), var(--ground)); }
.field { text-decoration: underline 2px; text-underline-offset: .25em;
  text-decoration-skip-ink: none; }
.several { text-decoration-style: double; }
.tokens sup { font-size: .75em; font-weight: 700; line-height: 0; }
.tokens sup::after { content: attr(data-field); }
.tokens .end::after { content: "end"; font-size: .8em; padding: 0 .3em; }
.scale { font-size: .85rem; color: var(--quiet); margin: .3rem 0 0;
  font-variant-numeric: tabular-nums; }
.scale i { display: inline-block; width: 5rem; height: .7rem; margin: 0 .4rem; border-radius: .2rem;
  box-shadow: inset 0 0 0 1px var(--grid);
  background: linear-gradient(to right, var(--unwanted), var(--ground), var(--wanted)); }
.scale span { white-space: nowrap; }
.rollout .fields { margin: .5rem 0 0; font-size: .85rem; }
.fields code { overflow-wrap: anywhere; }
.fields .delta { display: inline-block; padding: 0 .35rem; margin: .1rem 0;
  box-shadow: inset 0 0 0 1px var(--grid); font-variant-numeric: tabular-nums; }
.graph { overflow-x: auto; }
.graph > svg { display: block; }
.graph text { font-size: 11px; fill: var(--ink); }
.step rect { fill: var(--raised); stroke: var(--quiet); }
.step.last rect { stroke: var(--ink); stroke-width: 2; }
.step.before rect { fill: none; stroke-dasharray: 2 3; }
.graph .worker { font-size: 12px; } .graph tspan { font-weight: 700; }
.step rect.mark { fill: var(--ink); }
.graph text.mark { fill: var(--ground); text-anchor: middle; }
.arrow path { fill: none; stroke: var(--quiet); stroke-width: 1.5; }
.arrow path.head { fill: var(--quiet); stroke: none; }
.arrow.taken path { stroke-width: 2.5; stroke-dasharray: 6 4; }
.arrow.wanted path { stroke: color-mix(in srgb, var(--series-0) var(--share), var(--quiet)); }
.arrow.unwanted path { stroke: color-mix(in srgb, var(--series-1) var(--share), var(--quiet)); }
.arrow.wanted path.head { stroke: none;
  fill: color-mix(in srgb, var(--series-0) var(--share), var(--quiet)); }
.arrow.unwanted path.head { stroke: none;
  fill: color-mix(in srgb, var(--series-1) var(--share), var(--quiet)); }
.graph text.delta { text-anchor: middle; font-weight: 600; paint-order: stroke;
  stroke: var(--ground); stroke-width: 4px; }
"""


def page(name: str, kind: str, sections: Sequence[str]) -> str:
  """The whole document.

  Args:
    name: the run's name.
    kind: what the page is, such as "training report".
    sections: HTML, already escaped.
  """
  # The policy makes the browser refuse whatever would be loaded or run, should a text ever slip
  # through unescaped.
  return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(name)}: {escape(kind)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escape(kind.capitalize())}: {escape(name)}</h1>
{"".join(section for section in sections)}
</body>
</html>
"""


def section(title: str, body: str) -> str:
  """A part of the page with a heading, "" where its body is."""
  return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
  """A table.

  Args:
    headings: texts.
    rows: cells as HTML, the first of each a heading.
  """
  head = "".join(f"<th scope=col>{escape(text)}</th>" for text in headings)
  body = "".join(f"<tr>{''.join(cells)}</tr>" for cells in rows)
  return (f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
          f"<tbody>{body}</tbody></table></div>")
