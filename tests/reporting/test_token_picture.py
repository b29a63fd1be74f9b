"""The picture of a completion: its text, the colours of its tokens, and the marks of its fields."""

import html
import random
import re
from html.parser import HTMLParser

import pytest

from conductor_jax.reporting.page import page
from conductor_jax.reporting.token_picture import Scales, scales, signed, tint, token_picture

FULL = Scales(2.0, 1.0)


class Box(HTMLParser):
  """The text in the box of tokens, and the elements around it, as a browser reads them."""

  def __init__(self, markup):
    super().__init__()
    self.open, self.pieces, self.seen = [], [], set()
    self.feed(markup)
    self.close()

  def handle_starttag(self, tag, attributes):
    self.seen.add(tag)
    self.open.append(dict(attributes) | {"tag": tag})

  def handle_endtag(self, tag):
    assert self.open.pop()["tag"] == tag

  def handle_data(self, data):
    if any(each.get("class") == "tokens" for each in self.open):
      self.pieces.append((data, self.open[-1]))

  @property
  def text(self):
    return "".join(data for data, _ in self.pieces)

  def at(self, place):
    """The attributes of the element around a character."""
    for data, attributes in self.pieces:
      if place < len(data):
        return attributes
      place -= len(data)
    raise IndexError(place)


def row(text, starts=None, advantages=None, counterfactuals=None):
  fields = {"token_starts": starts, "advantages": advantages, "counterfactuals": counterfactuals}
  return {"completion": text, **{name: value for name, value in fields.items()
                                 if value is not None}}


def lost(span, delta, family="duty", step=0, removed=()):
  return {"family": family, "step": step, "span": list(span), "removed": list(removed),
          "delta": delta}


def mixed(box):
  """Of each piece its text, colour and tooltip."""
  return [(data, each.get("class"), each.get("style"), each.get("title"))
          for data, each in box.pieces]


def test_each_token_has_the_colour_and_the_number_of_its_advantage():
  text = token_picture(row("ab cd ef", [0, 2, 5, 8], [1.0, 0.0, -0.5, 2.0]), FULL)
  assert text.startswith(
      '<div class="tokens"><span class="wanted" style="--share:50%" title="advantage +1">ab</span>'
      '<span title="advantage 0"> cd</span>'
      '<span class="unwanted" style="--share:25%" title="advantage −0.5"> ef</span>'
      '<span class="wanted end" style="--share:100%" title="advantage +2, of the end">'
      "</span></div>")


def test_neighbours_of_the_same_advantage_are_one_element():
  box = Box(token_picture(row("abcdef", [0, 1, 2, 3, 4, 6], [1, 1, 1, -1, -1, -1]), FULL))
  assert mixed(box) == [
      ("abc", "wanted", "--share:50%", "advantage +1"),
      ("def", "unwanted", "--share:50%", "advantage −1")]


def test_a_long_completion_of_two_advantages_takes_few_elements():
  count = 20_000
  advantages = [0.5] * (count // 2) + [-0.5] * (count // 2)
  text = token_picture(row("x" * count, list(range(count)), advantages), FULL)
  assert text.count("<span") == 2 + text.count("<span>") and len(text) < count + 1000


def test_tokens_of_one_character_have_the_colour_of_the_first_and_both_numbers():
  box = Box(token_picture(row("a🙂b", [0, 1, 1, 2], [1.0, 2.0, -1.0, 1.0]), FULL))
  assert mixed(box) == [
      ("a", "wanted", "--share:50%", "advantage +1"),
      ("🙂", "wanted", "--share:100%", "advantage +2, −1"),
      ("b", "wanted", "--share:50%", "advantage +1")]


def test_a_number_that_tokens_of_one_character_share_is_said_once():
  assert 'title="advantage +1">é</span>' in token_picture(row("é", [0, 0], [1.0, 1.0]), FULL)


def test_tokens_without_an_advantage_have_no_colour():
  box = Box(token_picture(row("ab", [0, 1], [None, 1.0]), FULL))
  assert mixed(box) == [("a", "tokens", None, None), ("b", "wanted", "--share:50%", "advantage +1")]


@pytest.mark.parametrize("fields", [
    {}, {"advantages": [1.0]}, {"starts": [0]}, {"starts": [0], "advantages": [None]},
    {"counterfactuals": []}])
def test_without_places_or_advantages_the_completion_is_shown_alone(fields):
  assert token_picture(row("a <b>", **fields), FULL) == "<pre>a &lt;b&gt;</pre>"


def test_the_text_of_the_picture_is_the_completion_however_tokens_and_fields_overlap():
  draw = random.Random(7)
  for _ in range(200):
    text = "".join(draw.choices("ab \n\r<>&\"'é🙂", k=draw.randrange(1, 40)))
    starts = sorted(draw.randrange(len(text) + 1) for _ in range(draw.randrange(1, 20)))
    starts[0] = 0
    advantages = [draw.choice([None, -1.0, 0.0, 1.0, 2.0]) for _ in starts]
    found = [lost(sorted(draw.randrange(len(text) + 1) for _ in range(2)), draw.choice([None, 0.5]))
             for _ in range(draw.randrange(4))]
    markup = token_picture(row(text, starts, advantages, found), FULL)
    if markup.startswith("<pre>"):
      continue
    box = Box(markup)
    assert box.text == text and box.open == []
    for place in range(len(text)):
      covering = sum(each["span"][0] <= place < each["span"][1]
                     for each in {str(each["span"]): each for each in found}.values())
      names = (box.at(place).get("class") or "").split()
      assert ("field" in names, "several" in names) == (covering > 0, covering > 1)
      first = max(start for start in starts if start <= place)
      advantage = advantages[starts.index(first)]
      assert ("wanted" in names, "unwanted" in names) == (
          advantage is not None and advantage > 0, advantage is not None and advantage < 0)


def test_a_browser_changes_nothing_of_line_ends():
  # It drops a newline after <pre>, and reads a carriage return as a newline.
  assert token_picture(row("\n\r\n", [0], [0.0]), FULL).startswith(
      '<div class="tokens"><span title="advantage 0">\n&#13;\n</span></div>')


def test_what_a_model_wrote_is_escaped_in_the_text_and_in_the_list():
  evil = "<script>alert('1')</script>"
  markup = token_picture(row(evil, [0], [1.0], [lost((0, len(evil)), 0.5)]), FULL)
  assert Box(markup).seen == {"div", "span", "sup", "p", "i", "ol", "li", "code"}
  assert markup.count(html.escape(evil)) == 2
  assert "<script" not in token_picture(row(evil), FULL)


def test_a_field_is_underlined_and_has_the_number_of_its_line_in_the_list():
  markup = token_picture(
      row("do it now", [0, 2, 5], [1.0, 1.0, 1.0], [lost((3, 5), 0.5), lost((6, 9), -1.0)]), FULL)
  wanted = 'style="--share:50%" title="advantage +1"'
  assert (f'<span class="wanted" {wanted}>do </span><span class="wanted field" {wanted}>it</span>'
          f'<sup data-field="1"></sup><span class="wanted" {wanted}> </span>'
          f'<span class="wanted field" {wanted}>now</span><sup data-field="2"></sup></div>'
          ) in markup
  assert re.findall(r"<li>(.*?)</li>", markup) == [
      '<code>it</code> <span class="wanted delta" style="--share:50%">'
      "duty of step 0: Δ +0.5</span>",
      '<code>now</code> <span class="unwanted delta" style="--share:100%">'
      "duty of step 0: Δ −1</span>"]


def test_several_mutations_of_a_field_stand_in_its_line_in_the_order_of_the_log():
  markup = token_picture(row("[0, 1]", counterfactuals=[
      lost((0, 6), None, "dependency", 2, [0]), lost((0, 6), 0.0, "dependency", 2, [0, 1])]), FULL)
  assert markup.count("<sup") == 1 and markup.count("<li>") == 1
  assert ('<code>[0, 1]</code> <span class="delta">dependency of step 2 on 0: no verdict</span> '
          '<span class="delta">dependency of step 2 on 0, 1: Δ 0</span>') in markup


def test_fields_are_numbered_by_their_place_in_the_text():
  found = [lost((4, 6), 1.0), lost((0, 2), 1.0)]
  markup = token_picture(row("abcdef", counterfactuals=found), FULL)
  assert re.findall(r"<code>(.*?)</code>", markup) == ["ab", "ef"]
  assert re.search(r'ab</span><sup data-field="1"></sup>cd<span class="field">ef</span>'
                   r'<sup data-field="2">', markup)


def test_a_long_field_is_cut_in_the_list_alone():
  text = "word " * 40
  markup = token_picture(row(text, counterfactuals=[lost((0, len(text)), 1.0)]), FULL)
  assert Box(markup).text == text
  assert "<code>" + " ".join(["word"] * 12) + "…</code>" in markup


def test_the_legend_names_both_ends_of_the_scale():
  assert ('<p class="scale">Advantage: <span>−2 unwanted</span><i></i><span>wanted +2</span></p>'
          ) in token_picture(row("a", [0], [1.0]), FULL)
  assert '<p class="scale">Every advantage is 0.</p>' in token_picture(
      row("a", [0], [0.0]), Scales(0.0, 0.0))
  assert "full colour at ±0.5.</p>" in token_picture(
      row("a", counterfactuals=[lost((0, 1), 0.5)]), Scales(0.0, 0.5))


def test_the_scales_are_the_largest_numbers_of_all_rows_whatever_their_sign():
  rows = [row("a", [0], [-1.5]), row("a"), row("a", [0, 1], [None, 0.5], [lost((0, 1), None)]),
          row("a", counterfactuals=[lost((0, 1), -0.25), lost((0, 1), 0.125)])]
  assert scales(iter(rows)) == Scales(1.5, 0.25)
  assert scales([row("a")]) == Scales(0.0, 0.0)


@pytest.mark.parametrize(("value", "text"), [
    (0.0, "0"), (-0.0, "0"), (1.2345, "+1.23"), (-0.5, "−0.5")])
def test_numbers_have_their_sign(value, text):
  assert signed(value) == text


def test_zero_and_nothing_have_no_colour():
  assert tint(0.0, 2.0) == tint(None, 2.0) == tint(0.0, 0.0) == ""
  assert tint(-1.0, 2.0, "delta") == ' class="unwanted delta" style="--share:50%"'


def colours(style, mode):
  """The variables of a mode."""
  light, dark = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
  found = dict(re.findall(r"(--[\w-]+): (#[0-9a-f]+);", light))
  if mode == "dark":
    found |= dict(re.findall(r"(--[\w-]+): (#[0-9a-f]+);", dark))
  return {name: channels(value) for name, value in found.items()}


def channels(colour):
  digits = colour[1:]
  digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
  return [int(digits[i:i + 2], 16) / 255 for i in (0, 2, 4)]


def blend(colour, ground, share):
  """As `color-mix(in srgb, …)`."""
  return [share * a + (1 - share) * b for a, b in zip(colour, ground, strict=True)]


def contrast(one, other):
  """As WCAG 2.2 defines it."""
  def luminance(colour):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
  low, high = sorted((luminance(one), luminance(other)))
  return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("sign", ["wanted", "unwanted"])
def test_text_on_every_colour_and_arrows_of_every_colour_can_be_seen(mode, sign):
  style = page("run", "report", [])
  assert contrast(channels("#000"), channels("#fff")) == 21
  for box in "tokens", "fields":
    assert re.search(rf"\.{box} \.{sign}[^{{}}]*\{{\s*background: color-mix\(in srgb, "
                     rf"var\(--{sign}\) var\(--share\), var\(--ground\)\); \}}", style)
  series = {"wanted": "--series-0", "unwanted": "--series-1"}[sign]
  assert (f".arrow.{sign} path {{ stroke: color-mix(in srgb, var({series}) var(--share), "
          "var(--quiet)); }") in style
  found = colours(style, mode)
  for share in range(101):
    behind = blend(found[f"--{sign}"], found["--ground"], share / 100)
    assert contrast(found["--ink"], behind) >= 4.5
    arrow = blend(found[series], found["--quiet"], share / 100)
    assert contrast(arrow, found["--ground"]) >= 3
  assert contrast(found["--ink"], found["--raised"]) >= 4.5
  assert contrast(found["--quiet"], found["--ground"]) >= 4.5
