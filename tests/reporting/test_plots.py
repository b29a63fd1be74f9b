"""Smoothing, axes and the SVG that a page can take in."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_jax.reporting.plots import (
    Curves,
    curves,
    smooth,
    smoothing_window,
    stacked_seconds,
    values_of,
)

LOSS = Curves("loss", "Policy loss", "loss in nats", {"loss": "loss", "kl": "KL"})


def records(count, **metrics):
  return [{"phase": "grpo", "step": i, **{k: f(i) for k, f in metrics.items()}}
          for i in range(count)]


def test_smoothing_is_the_centred_mean_with_shorter_windows_at_the_ends():
  np.testing.assert_allclose(smooth(np.array([0.0, 3, 6, 0]), 3), [1.5, 3, 3, 3])


def test_smoothing_passes_over_missing_values():
  values = np.array([np.nan, 2.0, np.nan, np.nan, np.nan, 4.0])
  np.testing.assert_allclose(smooth(values, 3), [2, 2, 2, np.nan, 4, 4])


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), st.sampled_from([1, 3, 5, 41]))
def test_smoothing_keeps_length_and_range(values, window):
  smoothed = smooth(np.array(values), window)
  assert len(smoothed) == len(values)
  assert smoothed.min() >= min(values) - 1e-6 and smoothed.max() <= max(values) + 1e-6


@pytest.mark.parametrize("steps,window", [(1, 1), (23, 1), (24, 3), (160, 13), (1000, 83)])
def test_the_window_is_odd_and_about_a_twelfth_of_the_run(steps, window):
  assert smoothing_window(steps) == window


def test_null_and_absent_values_are_nan():
  np.testing.assert_array_equal(values_of([{"a": 1}, {"a": None}, {}], "a"), [1, np.nan, np.nan])


def test_a_panel_without_data_is_none():
  assert curves(LOSS, records(5, reward=float), "iteration") is None
  assert curves(LOSS, records(5, loss=lambda i: None), "iteration") is None
  assert curves(LOSS, [], "iteration") is None
  assert stacked_seconds("t", "Time", records(5, loss=float), {"seconds": "s"}, "step") is None


def test_the_legend_names_the_series_there_are_with_first_and_last_value():
  plot = curves(LOSS, records(3, loss=lambda i: 2.0 - i / 4), "iteration")
  assert [entry.label for entry in plot.legend] == ["loss 2 → 1.5"]
  plot = curves(LOSS, records(1, loss=lambda i: 2.0), "iteration")
  assert [entry.label for entry in plot.legend] == ["loss 2"]


def test_no_two_of_the_first_seven_series_share_colour_or_neighbours_a_dash():
  panel = Curves("kinds", "By kind", "accuracy", {str(i): str(i) for i in range(9)}, share=True)
  plot = curves(panel, records(2, **{str(i): float for i in range(9)}), "iteration")
  assert len({entry.colour for entry in plot.legend[:7]}) == 7
  assert len({(entry.colour, entry.dash) for entry in plot.legend}) == 9


def test_axes_are_labelled_in_text():
  svg = curves(LOSS, records(30, loss=float), "iteration").svg
  texts = {"".join(t.itertext()) for t in ElementTree.fromstring(svg).iter() if t.tag == "text"}
  assert {"iteration", "loss in nats"} <= texts


def test_the_svg_has_the_pages_colours_and_font_and_no_style_or_links_of_its_own():
  svg = curves(LOSS, records(30, loss=float, kl=lambda i: 1.0), "iteration", ("limit", 9.0)).svg
  assert svg.startswith("<svg viewBox=")
  assert {"--ink", "--grid", "--series-0", "--series-1"} <= set(re.findall(r"var\((.*?)\)", svg))
  assert not re.search(r"#0a0[ab]|<style|<metadata|font-family|<!DOCTYPE", svg)
  assert set(re.findall(r"https?://[^\"]*", svg)) <= {"http://www.w3.org/1999/xlink"}


def test_ids_of_two_panels_differ_and_references_resolve():
  data = records(30, loss=float)
  other = Curves("other", "Policy loss", "loss in nats", {"loss": "loss"})
  svgs = [curves(panel, data, "iteration").svg for panel in (LOSS, other)]
  ids = [re.findall(r'\bid="(.*?)"', svg) for svg in svgs]
  assert not set(ids[0]) & set(ids[1])
  for svg, own in zip(svgs, ids, strict=True):
    references = re.findall(r'(?:url\(|href=")#(.*?)[")]', svg)
    assert references and set(references) <= set(own)
    assert len(set(own)) == len(own)


def test_the_same_data_give_the_same_svg():
  data = records(40, loss=lambda i: np.sin(i))
  assert curves(LOSS, data, "iteration").svg == curves(LOSS, data, "iteration").svg


def test_a_logarithmic_axis_has_plain_numbers():
  panel = Curves("kl", "KL", "nats", {"kl": "KL"}, log=True)
  svg = curves(panel, records(30, kl=lambda i: 10.0 ** (i / 10 - 3)), "iteration").svg
  assert ">0.01</text>" in svg and ">0.1</text>" in svg


def test_a_logarithmic_axis_leaves_out_zeros_and_gives_way_when_all_are():
  panel = Curves("kl", "KL", "nats", {"kl": "KL"}, log=True)
  svg = curves(panel, records(12, kl=lambda i: 0.01 * 10 ** (i - 1) if i else 0), "iteration").svg
  assert ">0.01</text>" in svg and ">1e+08</text>" in svg
  assert ">0.00</text>" in curves(panel, records(3, kl=lambda i: 0.0), "iteration").svg


def test_time_is_in_medians_and_a_compiling_iteration_does_not_flatten_the_rest():
  data = records(20, sample=lambda i: 60.0 if i == 0 else 0.5, train=lambda i: 1.0)
  series = {"sample": "sampling", "train": "training"}
  plot = stacked_seconds("t", "Time", data, series, "iteration")
  assert [entry.label for entry in plot.legend] == ["sampling 0.50 s", "training 1.00 s"]
  assert "1 iteration took up to 61 s" in plot.note
  labels = [float(text) for text in re.findall(r">([\d.]+)</text>", plot.svg)]
  assert 1.5 in labels and 60 not in labels
