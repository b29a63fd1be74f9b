import pytest

from conductor_jax.tasks.graders.spelling import Unreadable, explicit


@pytest.mark.parametrize("latex, spelled", [
    (r"\frac38", r"\frac{3}{8}"),
    (r"\frac 38x", r"\frac{3}{8}x"),
    (r"\frac{3}8", r"\frac{3}{8}"),
    (r"\frac\pi3", r"\frac{\pi}{3}"),
    (r"\sqrt5", r"\sqrt{5}"),
    (r"\sqrt57", r"\sqrt{5}\cdot 7"),
    (r"\sqrt(2+\sqrt(3))", r"\sqrt{2+\sqrt{3}}"),
    (r"\sqrt\frac23", r"\sqrt{\frac{2}{3}}"),
    (r"\sqrt[3]{x}", r"\sqrt[3]{x}"),
    ("2^10", "2^{10}"),
    ("x^(n+1)", "x^{n+1}"),
    (r"3\frac{1}{4}", r"(3+\frac{1}{4})"),
    (r"3\frac{5}{4}", r"3\cdot \frac{5}{4}"),
    (r"3\frac{x}{4}", r"3\cdot \frac{x}{4}"),
    (r"x^2\frac{1}{4}", r"x^{2}\cdot \frac{1}{4}"),
    (r"\sin 2x\cos y", r"\sin (2x)\cos (y)"),
    (r"\sin x\cdot y", r"\sin (x)\cdot y"),
    (r"\cos^2 x-1", r"\cos ^{2}(x)-1"),
    (r"\ln|x|", r"\ln (|x|)"),
    (r"|\ln x|", r"|\ln (x)|"),
    (r"\log_2 8", r"\log _{2}(8)"),
    (r"\binom{7}{2}", r"\frac{(7)!}{(2)!\cdot ((7)-(2))!}"),
    ("3|x||y|", r"3\cdot |x|\cdot |y|"),
    ("f(x)", "f(x)"),
])
def test_arguments_have_braces(latex, spelled):
  assert explicit(latex) == spelled


@pytest.mark.parametrize("latex, spelled", [
    ("3(4)", r"3\cdot (4)"), ("(3)(4)", r"(3)\cdot (4)"), ("x(x+1)", r"x\cdot (x+1)"),
    (r"\frac{6}{2}\frac{8}{4}", r"\frac{6}{2}\cdot \frac{8}{4}"), ("x^{2}(y)", r"x^{2}\cdot (y)"),
    (r"2\binom{4}{2}", r"2\cdot \frac{(4)!}{(2)!\cdot ((4)-(2))!}")])
def test_products_that_the_parser_would_add_or_call_are_written_out(latex, spelled):
  assert explicit(latex) == spelled


@pytest.mark.parametrize("latex, why", [
    ("3 4", "side by side"), ("204_7", "stands alone"), (r"\frac{3", "missing"), ("(3", "missing"),
    ("3)", "not understood"), (r"\sqrt", "breaks off"), (r"3\unknown", "not understood"),
    ("f'(x)", "not understood"), ("|3", "missing"), ("^2", "stands alone"), ("()", "nothing"),
    (r"\sqrt[1234]{2}", "index"), ("(" * 13 + "3" + ")" * 13, "nested"),
    ("|" * 13 + "3" + "|" * 13, "nested"), (r"3\text{ not }4", "not understood")])
def test_what_would_be_lost_is_refused(latex, why):
  with pytest.raises(Unreadable, match=why):
    explicit(latex)
