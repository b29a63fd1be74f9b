"""Figures in the colours of a page, light or dark, or in those of a sheet of paper."""

import re
from dataclasses import dataclass
from io import BytesIO, StringIO
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from conductor_jax.reporting.metrics import atomic_file

_DOTS_PER_INCH = 160
# Points; a page scales a figure to its column, so text is 10 to 15 pixels high on screen.
FONT = 10

# Series differ by more than their colour: matplotlib's dashes, in line widths, and SVG's for the
# legend.
DASHES = (
    ("-", ""),
    ((0, (4, 1.5)), "7 2.5"),
    ((0, (1.3, 1.1)), "2.5 2.2"),
    ((0, (5, 1.3, 1.3, 1.3)), "9 2.5 2.5 2.5"),
)


@dataclass(frozen=True)
class Palette:
  """Colours as matplotlib takes them.

  Attributes:
    ink: of texts.
    grid: of what is not to be seen first.
    ground: behind everything.
    series: of what is compared, seven.
  """

  ink: str
  grid: str
  ground: str
  series: tuple[str, ...]


# matplotlib knows only fixed colours: it draws with these, and `inline_svg` replaces them by the
# page's CSS variables.
PAGE = Palette("#0a0a01", "#0a0a02", "#0a0a03", tuple(f"#0a0b{i:02x}" for i in range(7)))
_VARIABLES = {PAGE.ink: "--ink", PAGE.grid: "--grid", PAGE.ground: "--ground",
              **{colour: f"--series-{i}" for i, colour in enumerate(PAGE.series)}}
# Those of a page in a light room.
PAPER = Palette("#1d2125", "#d5d9dd", "#ffffff", (
    "#0072b2", "#d55e00", "#00966c", "#7d2a68", "#c773a8", "#5c4400", "#111111"))


def new_figure(width: float, height: float, palette: Palette) -> Figure:
  """An empty figure, in points; on paper it has a ground of its own."""
  figure = Figure(figsize=(width / 72, height / 72), dpi=72, layout="constrained")
  FigureCanvasAgg(figure)
  figure.patch.set_facecolor(palette.ground)
  figure.patch.set_visible(palette is not PAGE)
  return figure


def style_axes(axes: Axes, palette: Palette, x_label: str, y_label: str) -> None:
  """Labels the axes, and takes away what is not data."""
  axes.patch.set_visible(False)
  axes.set_xlabel(x_label, color=palette.ink, fontsize=FONT)
  axes.set_ylabel(y_label, color=palette.ink, fontsize=FONT)
  axes.tick_params(colors=palette.ink, labelsize=FONT, color=palette.grid, length=3)
  axes.set_axisbelow(True)
  axes.spines[["top", "right", "left"]].set_visible(False)
  axes.spines["bottom"].set_color(palette.grid)


def svg_document(figure: Figure, salt: str) -> str:
  """The figure as a file, with text as text; the same figure and salt give the same bytes."""
  text = StringIO()
  with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt}):
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
  return text.getvalue()


def write_figure(path: Path, figure: Figure | None) -> None:
  """Writes a figure as SVG and PNG; takes away that of an earlier session where there is none.

  Args:
    path: of both files, without a suffix.
    figure: what was drawn.
  """
  svg, png = path.with_suffix(".svg"), path.with_suffix(".png")
  if figure is None:
    svg.unlink(missing_ok=True)
    png.unlink(missing_ok=True)
    return
  picture = BytesIO()
  figure.savefig(picture, format="png", dpi=_DOTS_PER_INCH)
  for each, content in ((svg, svg_document(figure, path.name).encode()), (png, picture.getvalue())):
    with atomic_file(each) as file:
      file.write(content)


def inline_svg(figure: Figure, identifier: str, title: str) -> str:
  """A figure in `PAGE` as an `<svg>` element, with text in the page's font and colours.

  Args:
    figure: what was drawn.
    identifier: unique on the page; the element's ids start with it.
    title: says what it shows.
  """
  svg = svg_document(figure, identifier)
  svg = svg[svg.index("<svg"):]
  svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
  # matplotlib's own style element would apply to the whole page.
  svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)
  svg = re.sub(r'font-family: [^;"]*; ', "", svg)
  svg = re.sub(r'\bid="', f'id="{identifier}-', svg)
  svg = re.sub(r'(url\(#|href="#)', rf"\1{identifier}-", svg)
  svg = re.sub(r'^<svg [^>]*?(viewBox="[^"]*")[^>]*>',
               rf'<svg \1 xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
               rf'aria-label="{title}">', svg)
  return re.sub("#0a0[ab][0-9a-f]{2}", lambda m: f"var({_VARIABLES[m[0]]})", svg).strip()
