import pytest

from conductor_jax.tasks.graders.latex import cleaned, without_thousands_commas


@pytest.mark.parametrize("text, expected", [
    (r"\left( 2, \frac{\pi}{3} \right)", r"( 2, \frac{\pi}{3} )"),
    (r"\dfrac{3}{7}", r"\frac{3}{7}"),
    ("$x^2$.", "x^2"),
    ("−3×2", r"-3\times 2"),
    ("2π ≤ ∞", r"2\pi \le \infty"),
    ("x² + y₁₀", "x^{2} + y_{10}"),
    ("√15 + √(x)", r"\sqrt{15} + \sqrt(x)"),
    ("sqrt(5), sqrt17", r"\sqrt(5), \sqrt{17}"),
    ("3pi/4", r"3\pi /4"),
    ("4e-3", r"4\cdot 10^{-3}"),
    ("4e", "4e"),
    ("3*x**2", r"3\cdot x^2"),
    (r"14{,}200", "14200"),
    (r"1\,400\,000", "1400000"),
    (r"2,\! 315,\! 000", "2315000"),
    ("7 250 000", "7250000"),
    (".25", "0.25"),
    (r"40^\circ", r"40^{\circ}"),
    (r"\$18", "18"),
    ("2 3/8", r"(2+\frac{3}{8})"),
    (r"3 \text{ and } 8", "3 , 8"),
    ("3 or 8", "3 , 8"),
    (r"x=1 \quad y=2", "x=1 , y=2"),
    (r"x \implies 2", r"x \implies 2"),
    (r"\begin{align*} x &= 4 \\ &= 2^2 \end{align*}", "x = 4 = 2^2"),
    (r"x \geq 3, y \leqslant 2, z \neq 1", r"x \ge 3, y \le 2, z \ne 1"),
])
def test_notations_of_one_meaning_become_one(text, expected):
  assert cleaned(text) == expected


@pytest.mark.parametrize("text", [
    r"\mathrm{e}", r"\text{e}", r"\operatorname{e}", r"\mathrm e", r"{\rm e}", "ℯ", r"\mathbf{e}"])
def test_e_is_a_constant_in_every_font(text):
  assert cleaned(text) == "e"


@pytest.mark.parametrize("text, expected", [
    (r"1+\mathrm{i}", "1+ i"), (r"\imath", "i"), (r"2\mathrm{\pi}", r"2 \pi"), (r"2\uppi", r"2\pi"),
    (r"\operatorname{sin}(x)", r"\sin (x)"), (r"\mathrm{ln} 2", r"\ln 2"),
    (r"\mathbf{12}", "12"), (r"\text{12}", "12"), (r"\boldsymbol{x}", "x")])
def test_fonts_change_no_meaning(text, expected):
  assert cleaned(text) == expected


@pytest.mark.parametrize("text, expected", [
    (r"5\mathrm{m}", r"5\text{m}"), (r"5 \text{ cm}", r"5 \text{cm}"),
    (r"\text{odd}", r"\text{odd}")])
def test_words_and_units_stay_apart_from_symbols(text, expected):
  assert cleaned(text) == expected


@pytest.mark.parametrize("text, fraction", [
    (r"0.\overline{27}", r"\frac{27}{99}"), (r"0.1\overline{6}", r"\frac{15}{90}"),
    (r"2.\dot{4}", r"\frac{22}{9}"), ("0.777...", r"\frac{7}{9}"),
    (r"0.2333\ldots", r"\frac{21}{90}")])
def test_a_repeating_decimal_is_a_fraction(text, fraction):
  assert cleaned(text) == f"({fraction})"


def test_only_groups_of_three_digits_lose_their_commas():
  assert without_thousands_commas("48,500") == "48500"
  assert without_thousands_commas("1,204,000.5") == "1204000.5"
  assert without_thousands_commas("1, 200") == "1, 200"
  assert without_thousands_commas("12,34") == "12,34"
