"""Programs in answers as models write them, and behind the beginnings of their tasks."""

import textwrap

import pytest

from conductor_jax.tasks.graders.programs import completed, defines, extract_program

_F = "def f(x):\n    return x"


def _block(content, language="python", fence="```"):
  return f"{fence}{language}\n{content}\n{fence}"


@pytest.mark.parametrize("answer", [
    _block(_F),
    _block(_F, ""),
    _block(_F, "py"),
    _block(_F, "Python3"),
    _block(_F, " python"),
    _block(_F, "{.python}"),
    _block(_F, 'python title="f.py"'),
    _block(_F, fence="~~~"),
    _block(_F, fence="````"),
    f"Here it is:\n\n{_block(_F)}\n\nIt returns `x`.",
    f"{_block('def f(x):' + chr(10) + '    return 0')}\nNo:\n{_block(_F)}",
    f"{_block(_F)}\nUse it so:\n{_block('print(f(3))')}",
    f"{_block(_F)}\nThis prints\n{_block('3', '')}",
    f"{_block(_F)}\nThis prints\n{_block('3', 'text')}",
    f"Install it first:\n{_block('pip install f', 'bash')}\n{_block(_F)}\n{_block('{}', 'json')}",
    f"{_block('', 'python')}\n{_block(_F)}\n{_block('   ', 'python')}",
    f"{_block('g = 1', 'python')}\n{_block(_F, '')}",
    f"Some thoughts about ```python.\n{_block(_F)}",
    f"<think>\n{_block('def f(x): return 1')}\n</think>\n{_block(_F)}",
    f"<think>\n```python\ndef f(x):\n</think>{_block(_F)}",
    f"{_block('def f(x): return 2')}\n<answer>\n{_block(_F)}\n</answer>",
    f"<answer>{_F}</answer>",
    f"<answer>\n{_F}\n</answer> which is right",
    f"{_block(_F)}\n<answer>see above</answer>",
    f"<answer>{_block('def f(x): return 2')}</answer> rather <answer>{_block(_F)}</answer>",
    f"```python\n{_F}\n",
    f"```python\n{_F}",
    _F,
    f"\n\n{_F}\n",
    f"The function is\n\n{_F}\n\nThat is all.",
    f"1. Write this:\n\n   ```python\n{textwrap.indent(_F, '   ')}\n   ```\n2. Done.",
    f"- Write this:\n\t```python\n{textwrap.indent(_F, chr(9))}\n\t```",
    f"````markdown\nSo:\n{_block(_F)}\n````",
    f"```markdown\nSo:\n{_block(_F)}\n```",
    _block(_F).replace("\n", "\r\n"),
    f"\ufeff{_F}",
])
def test_the_program_that_an_answer_settles_on(answer):
  assert extract_program(answer, "f").strip() == _F


@pytest.mark.parametrize("answer, expected", [
    (f"{_block('print(int(input()) + 1)')}\nFor example\n{_block('print(5)')}",
     "print(int(input()) + 1)"),
    (f"{_block('import sys; print(sys.stdin.read())')}\n{_block('x = 1')}",
     "import sys; print(sys.stdin.read())"),
    (f"{_block('print(1)')}\n{_block('print(2)')}", "print(2)"),
    (f"{_block('print(1)')}\n{_block('2', '')}", "print(1)"),
    (f"{_block('print(1)', '')}\n{_block('int main() {}', 'cpp')}", "print(1)"),
    ("n = int(input())\nprint(n + 1)", "n = int(input())\nprint(n + 1)"),
    ("Answer:\n\nimport sys\nfor line in sys.stdin:\n    print(line)\n\nGood luck!",
     "import sys\nfor line in sys.stdin:\n    print(line)"),
])
def test_the_program_that_reads_its_input(answer, expected):
  assert extract_program(answer).strip() == expected


@pytest.mark.parametrize("answer", [
    "", "   ", "I cannot do that.", "The answer is 42.", "x = 5", "<answer>42</answer>",
    _block("ls", "bash"), _block("", "python"), _block("3", "output"), "```", "```python",
    "Sort the numbers (it is easy), and return them.",
])
def test_prose_and_other_languages_hold_no_program(answer):
  assert extract_program(answer, "f") is None
  assert extract_program(answer) is None


def test_fences_within_a_docstring_are_part_of_it():
  program = 'def f(x):\n    """Says x.\n\n    ```\n    f(3)\n    ```\n    """\n    return x'
  assert extract_program(_block(program), "f").strip() == program
  assert extract_program(_block(program, ""), "f").strip() == program


def test_the_rest_of_a_function_is_a_program_where_one_is_wanted():
  body = "    y = x\n    return y"
  assert extract_program(body, "f") == body
  assert extract_program(_block(body), "f").rstrip("\n") == body
  assert extract_program(body) is None


def test_a_class_with_the_method_is_found():
  program = "class Solution:\n    def f(self, x: List[int]) -> int:\n        return x"
  answer = f"{_block(program)}\n{_block('Solution().f([1])')}"
  assert extract_program(answer, "f").strip() == program


@pytest.mark.parametrize("answer", [
    "a" * 100_000,
    "`" * 100_000,
    "```python\n" * 20_000,
    "~~~\n```\n" * 20_000,
    "for a in " * 12_000,
    "a, " * 40_000,
    " " * 100_000 + "x",
    "def f(" * 20_000,
    "from __future__ import (" * 5_000,
    "<answer>" * 15_000,
    "while a:" * 15_000 + "\n" * 1_000,
    "\n".join(["```python", *["x = 1"] * 20_000, "```"]),
    "x(" * 50_000,
    "\n".join(["word"] * 30_000 + ["print(1)"]),
])
def test_a_long_answer_takes_no_time(answer):
  program = extract_program(answer, "f") or ""
  extract_program(answer)
  assert len(completed(program, "def f(x):\n", "f")) < 1_000_000


@pytest.mark.parametrize("program, expected", [
    ("def f(x):\n  return x", True), ("async def f (x): pass", True), ("f = lambda x: x", True),
    ("f: Callable = g", True), ("class A:\n\tdef f(self): pass", True), ("def ff(x): pass", False),
    ("f == 1", False), ("f(1)", False), ("# def f(x):", False), ("x.f = 1", False),
])
def test_what_defines_a_function(program, expected):
  assert defines(program, "f") is expected


_BEGINNING = 'import math\n\ndef g(x):\n    return x + 1\n\ndef f(x):\n    """Says x + 1."""\n'


@pytest.mark.parametrize("program", [
    "    return g(x)",
    "    y = g(x)\n    return y",
    "return g(x)",
    "y = g(x)\nreturn y",
    "y = g(x)\n    return y",
    "for _ in range(1):\n        y = g(x)\n    return y",
    "for _ in range(1):\n    y = g(x)\nreturn y",
    "if x:\n    return g(x)\nreturn 1",
    "import os\nreturn g(x)",
    "\treturn g(x)",
    "def f(x):\n    return g(x)",
    "def f(x):\n    return math.floor(x) + 1",
    "def g(x):\n    return x + 1\ndef f(x): return g(x)",
    "from __future__ import annotations\nimport os\ndef f(x: Nothing): return g(x)",
    "from __future__ import annotations\n    return g(x)",
    "f = lambda x: x + 1",
    "class Solution:\n    def f(self, x):\n        return g(x)",
    "class Solution:\n    def f(self, x):\n        return f(x)\ndef f(x): return g(x)",
    f"{_BEGINNING}    return g(x)",
    "    def inner(y):\n        return g(y)\n    return inner(x)",
    '    return g(x)\n\nif __name__ == "__main__":\n    print(f(3))',
    "  if x:\n    return g(x)",
    "    y = g(x)\n    return y\n\ndef other(x):\n    return x",
])
def test_a_completed_program_does_what_it_says(program):
  names = {"__name__": "solution"}
  exec(compile(completed(program, _BEGINNING, "f"), "f.py", "exec", dont_inherit=True), names)
  assert names["f"](5) == 6


def test_a_program_without_the_function_leaves_it_empty():
  names = {}
  exec(completed("def other(x):\n    return x", _BEGINNING, "f"), names)
  assert (names["f"](5), names["other"](5)) == (None, 5)
