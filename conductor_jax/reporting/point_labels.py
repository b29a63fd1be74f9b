"""Names beside the points of a plot, where they cover neither each other nor the data."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from conductor_jax.reporting.figure import FONT, Palette

# (left, bottom, right, top), in points.
Box = Float[np.ndarray, " 4"]

# Where a label may begin: directions, and distances from its point.
_DIRECTIONS = tuple((np.cos(angle), np.sin(angle)) for angle in np.arange(16) * np.pi / 8)
_DISTANCES = (8.0, 14.0, 22.0, 32.0, 44.0, 58.0)
# From which distance on a line leads to the point.
_LED = 12.0
_MARKER = 5.0
# Rounds in which each label may move again, now that the others have a place.
_ROUNDS = 6


def label_points(
    axes: Axes, names: Sequence[str], points: Float[np.ndarray, "points 2"],
    bars: Float[np.ndarray, "points 2"], path: Float[np.ndarray, "corners 2"], palette: Palette
) -> None:
  """Writes the names, each near its point.

  Args:
    axes: with all data drawn and its limits set.
    names: of the points.
    points: in data coordinates.
    bars: the ends of a vertical bar at each point, likewise.
    path: of a line whose parts are level or upright, likewise.
    palette: colours.
  """
  axes.figure.draw_without_rendering()  # the layout is fixed, and texts have a size
  places, tops, bottoms = (
      axes.transData.transform(np.stack([points[:, 0], heights], axis=1))
      for heights in (points[:, 1], bars.max(axis=1), bars.min(axis=1)))
  texts = [axes.annotate(
      name, (0, 0), xycoords="figure points", color=palette.ink, fontsize=FONT, va="center",
      ha="center", parse_math=False) for name in names]
  extents = [text.get_window_extent() for text in texts]
  sizes = np.array([(extent.width + 2, extent.height) for extent in extents])
  obstacles = [_around(place, (2 * _MARKER, 2 * _MARKER)) for place in places]
  obstacles += [np.array([x - 2, low, x + 2, high])
                for (x, high), (_, low) in zip(tops, bottoms, strict=True)]
  corners = axes.transData.transform(path)
  obstacles += [np.concatenate([np.minimum(start, end) - 1, np.maximum(start, end) + 1])
                for start, end in pairwise(corners)]
  area = axes.get_window_extent()
  frame = np.array([area.x0, area.y0, area.x1, area.y1])
  centres = place_labels(places, sizes, np.array(obstacles), frame)
  for text, place, centre, size in zip(texts, places, centres, sizes, strict=True):
    text.set_position(centre)
    text.xy = centre
    # From the label's nearest edge.
    start = np.clip(place, centre - size / 2, centre + size / 2)
    if np.hypot(*(start - place)) > _LED:
      axes.annotate("", place, start, xycoords="figure points", textcoords="figure points",
                    arrowprops={"arrowstyle": "-", "color": palette.ink, "linewidth": 0.5,
                                "shrinkA": 0, "shrinkB": 4})


def place_labels(
    places: Float[np.ndarray, "points 2"], sizes: Float[np.ndarray, "points 2"],
    obstacles: Float[np.ndarray, "boxes 4"], frame: Box
) -> Float[np.ndarray, "points 2"]:
  """The centres of labels: of all places near its point, each takes the one that covers least.

  Args:
    places: the points.
    sizes: width and height of each label.
    obstacles: what should not be covered.
    frame: in which all labels should be.
  """
  options = [_options(place, size) for place, size in zip(places, sizes, strict=True)]
  centres = np.array([choices[0] for choices in options]).reshape(-1, 2)
  # Those in a crowd choose first.
  crowd = [np.sum(np.hypot(*(places - place).T) < 60) for place in places]
  order = sorted(range(len(places)), key=lambda i: (-crowd[i], i))
  placed: set[int] = set()
  for _ in range(_ROUNDS):
    before = centres.copy()
    for i in order:
      others = np.array([_around(centres[j], sizes[j]) for j in placed if j != i]).reshape(-1, 4)
      boxes = np.array([_around(choice, sizes[i]) for choice in options[i]])
      distances = _distances(boxes, places)
      # A label that is nearer to another point is taken for that one's.
      astray = distances.min(axis=1) < distances[:, i] - 0.5
      # A thin line has little area, and strikes a label out all the same.
      cost = (10 * _shared(boxes, others).sum(axis=1)
              + np.minimum(_shared(boxes, obstacles), 30).sum(axis=1)
              + 30 * (_shared(boxes, obstacles) > 0).sum(axis=1)
              + 100 * _outside(boxes, frame) + 2 * distances[:, i] + 60 * astray)
      centres[i] = options[i][int(np.argmin(cost))]
      placed.add(i)
    if np.array_equal(before, centres):
      break
  return centres


def _options(place: np.ndarray, size: np.ndarray) -> Float[np.ndarray, "options 2"]:
  """Centres at which the label touches a circle around its point, from outside."""
  return np.array([
      place + distance * np.array(direction) + np.array(direction) * size / 2
      for distance in _DISTANCES for direction in _DIRECTIONS])


def _around(centre: Sequence[float], size: Sequence[float]) -> Box:
  half = np.asarray(size) / 2
  return np.concatenate([centre - half, centre + half])


def _shared(boxes: Float[np.ndarray, "options 4"], others: Float[np.ndarray, "boxes 4"]
            ) -> Float[np.ndarray, "options boxes"]:
  """The area that each box has in common with each of the others."""
  overlap = (np.minimum(boxes[:, None, 2:], others[None, :, 2:])
             - np.maximum(boxes[:, None, :2], others[None, :, :2])).clip(0)
  return overlap.prod(axis=-1)


def _distances(boxes: Float[np.ndarray, "options 4"], places: Float[np.ndarray, "points 2"]
               ) -> Float[np.ndarray, "options points"]:
  """From each box to each point."""
  nearest = np.clip(places, boxes[:, None, :2], boxes[:, None, 2:])
  return np.hypot(*np.moveaxis(nearest - places, -1, 0))


def _outside(boxes: Float[np.ndarray, "options 4"], frame: Box) -> Float[np.ndarray, " options"]:
  """How far each box sticks out of the frame."""
  return ((frame[:2] - boxes[:, :2]).clip(0) + (boxes[:, 2:] - frame[2:]).clip(0)).sum(axis=1)
