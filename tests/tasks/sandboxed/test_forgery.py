"""Results that make the comparisons of their tests come out as they like. None may pass."""

import pytest

from tests.tasks.sandboxed.unit_tests_task import RIGHT, grade

_EQUAL = """
import unittest
class TestCases(unittest.TestCase):
    def test_1(self):
        self.assertEqual(task_func([3, 1, 2]), [1, 2, 3])
"""
_TRUE = """
import unittest
class TestCases(unittest.TestCase):
    def test_1(self):
        self.assertTrue(task_func("abc").startswith("xyz"))
"""
_NEAR = """
import unittest
class TestCases(unittest.TestCase):
    def test_1(self):
        self.assertAlmostEqual(task_func([1.5, 2.5]), 2.0)
"""
_FIELD = """
import unittest
class TestCases(unittest.TestCase):
    def test_1(self):
        self.assertEqual(task_func([3, 1, 2])["sorted"], [1, 2, 3])
"""
_CALLED = """
import unittest
from unittest.mock import MagicMock
class TestCases(unittest.TestCase):
    def test_1(self):
        kept = MagicMock()
        task_func([3, 1, 2], kept)
        kept.store.assert_called_once_with([1, 2, 3])
"""
_KEPT = """
import unittest
from unittest.mock import MagicMock
class TestCases(unittest.TestCase):
    def test_1(self):
        self.assertAlmostEqual(task_func(MagicMock()), 2.5)
"""
_RAISED = """
import unittest
class TestCases(unittest.TestCase):
    def test_1(self):
        with self.assertRaises(ValueError) as raised:
            task_func([])
        self.assertEqual(raised.exception.args, ("nothing to sort",))
"""
_CHANGED = """
import unittest
class TestCases(unittest.TestCase):
    def test_1(self):
        numbers = [3, 1, 2]
        task_func(numbers)
        self.assertEqual(numbers, [1, 2, 3])
"""

EQUAL_TO_ALL = {
    "a class with __eq__": """
        class E:
            def __eq__(self, other): return True
        def task_func(numbers): return E()
    """,
    "a class whose __eq__ has no name": """
        E = type("E", (), {"__eq__": lambda self, other: True})
        def task_func(numbers): return E()
    """,
    "a class whose __eq__ is a builtin": """
        class E:
            __eq__ = bool
        def task_func(numbers): return E()
    """,
    "a class whose __eq__ is a method of another": """
        class E(int):
            __eq__ = int.__ge__
        def task_func(numbers): return E(9)
    """,
    "a list with __eq__": """
        class E(list):
            def __eq__(self, other): return True
        def task_func(numbers): return E(numbers)
    """,
    "a reflected __eq__": """
        class E(list):
            def __eq__(self, other): return list(other) == list(other)
            def __ne__(self, other): return False
            __hash__ = None
        def task_func(numbers): return E()
    """,
    "a class of a class with __eq__": """
        class Meta(type):
            def __eq__(cls, other): return True
            def __hash__(cls): return 5
        class E(metaclass=Meta):
            def __eq__(self, other): return True
            __hash__ = object.__hash__
        def task_func(numbers): return E()
    """,
    "a class with the file name of the library": """
        source = "class E:\\n    def __eq__(self, other): return True\\n"
        import os
        exec(compile(source, os.__file__, "exec"))
        def task_func(numbers): return E()
    """,
    "a function with a code object of another file": """
        import os
        def same(self, other): return True
        same.__code__ = same.__code__.replace(co_filename=os.__file__)
        E = type("E", (), {"__eq__": same})
        def task_func(numbers): return E()
    """,
    "a function unpacked with another file's name": """
        import marshal, os, types
        name = "a" * len(os.__file__)
        code = compile("lambda self, other: True", name, "eval").co_consts[0]
        code = marshal.loads(marshal.dumps(code).replace(name.encode(), os.__file__.encode()))
        E = type("E", (), {"__eq__": types.FunctionType(code, {})})
        def task_func(numbers): return E()
    """,
    "a module unpacked with another file's name": """
        import importlib.util, marshal, os, struct, sys
        source = "class E:\\n    def __eq__(self, other): return True\\n"
        name = "a" * len(os.__file__)
        data = marshal.dumps(compile(source, name, "exec")).replace(
            name.encode(), os.__file__.encode())
        with open("planted.pyc", "wb") as file:
            file.write(importlib.util.MAGIC_NUMBER + struct.pack("<III", 0, 0, 0) + data)
        sys.path.insert(0, os.getcwd())
        from planted import E
        def task_func(numbers): return E()
    """,
    "a class said to be of the library": """
        import fractions
        class E(fractions.Fraction):
            __module__ = "fractions"
            __eq__ = bool
        fractions.E = E
        def task_func(numbers): return E(1)
    """,
    "a class of the library with another __eq__": """
        import collections
        collections.UserList.__eq__ = lambda self, other: True
        def task_func(numbers): return collections.UserList()
    """,
    "a made-up dataclass": """
        import dataclasses
        @dataclasses.dataclass
        class E:
            number: int = 0
        E.__eq__ = lambda self, other: type(other) is list and len(other) == 3
        def task_func(numbers): return E()
    """,
    "a mock's ANY": """
        from unittest.mock import ANY
        def task_func(numbers): return ANY
    """,
    "a mock that is told what it equals": """
        from unittest.mock import MagicMock
        def task_func(numbers):
            result = MagicMock()
            result.__eq__.return_value = True
            return result
    """,
    "a mock with a side effect": """
        from unittest.mock import MagicMock
        def task_func(numbers):
            result = MagicMock()
            result.__eq__.side_effect = lambda other: isinstance(other, list)
            return result
    """,
    "a mock with __eq__": """
        from unittest.mock import MagicMock
        def task_func(numbers):
            result = MagicMock()
            result.__eq__ = lambda self, other: True
            return result
    """,
    "a class of a mock with __eq__": """
        from unittest.mock import MagicMock
        class E(MagicMock):
            __eq__ = MagicMock(return_value=True)
        def task_func(numbers): return E()
    """,
}
NESTED = {
    "in a dict": "{'sorted': E()}",
    "in a dict of its own": "Own(sorted=E())",
    "in a default dict": "collections.defaultdict(E)",
    "in a chain": "collections.ChainMap({'sorted': E()})",
    "in a user's dict": "collections.UserDict(sorted=E())",
    "deep": "{'sorted': E(), 'rest': [[[[[[[0]]]]]]]}",
    "late": "{**dict.fromkeys(range(50_000), 0), 'sorted': E()}",
    "behind much": "{**{number: [] for number in range(200_000)}, 'sorted': E()}",
    "behind objects of libraries":
        "{**{number: collections.UserList() for number in range(500)}, 'sorted': E()}",
}


@pytest.mark.parametrize("name", EQUAL_TO_ALL)
async def test_what_equals_everything_does_not_pass(name, own_sandbox):
  found = await grade(own_sandbox, EQUAL_TO_ALL[name], _EQUAL)
  assert not found.correct
  assert "interferes" in found.reason or "refused" in found.reason, found.reason


@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("equal", ["bool", "lambda self, other: True"])
async def test_nor_does_what_holds_such(name, equal, own_sandbox):
  found = await grade(own_sandbox, f"""
    import collections
    E = type("E", (), {{"__eq__": {equal}}})
    class Own(dict): pass
    def task_func(numbers): return {NESTED[name]}
  """, _FIELD)
  assert not found.correct
  assert "interferes" in found.reason, found.reason


OTHERS = {
    "a text with its own startswith": (_TRUE, """
        class E(str):
            def startswith(self, prefix): return True
        def task_func(text): return E(text)
    """),
    "an object with a startswith": (_TRUE, """
        class E:
            startswith = bool
        def task_func(text): return E()
    """),
    "a property that is a class": (_TRUE, """
        class Says:
            def __init__(self, of): pass
            def __call__(self, prefix): return True
        class E:
            startswith = property(Says)
        def task_func(text): return E()
    """),
    "an attribute that says yes": (_TRUE, """
        class E: pass
        def task_func(text):
            result = E()
            result.startswith = lambda prefix: True
            return result
    """),
    "a number with its own distance": (_NEAR, """
        class E(float):
            def __sub__(self, other): return 0.0
            __rsub__ = __sub__
        def task_func(numbers): return E(0)
    """),
    "a number with its own rounding": (_NEAR, """
        class E(float):
            def __eq__(self, other): return round(self) == 0
            __hash__ = float.__hash__
        def task_func(numbers): return E(0)
    """),
    "a class of the library with another method": (_TRUE, """
        import collections
        collections.UserString.startswith = bool
        def task_func(text): return collections.UserString(text)
    """),
    "an argument of a mock": (_CALLED, """
        class E:
            __eq__ = bool
        def task_func(numbers, kept): kept.store(E())
    """),
    "a mock's record": (_CALLED, """
        def task_func(numbers, kept):
            kept.store.assert_called_once_with = lambda *arguments: None
    """),
    "a mock's record by way of its class": (_CALLED, """
        def task_func(numbers, kept):
            type(kept.store).assert_called_once_with = print
    """),
    "a mock that says yes to all": (_TRUE, """
        from unittest.mock import MagicMock
        def task_func(text): return MagicMock()
    """),
    "a mock by its specification": (_TRUE, """
        from unittest.mock import create_autospec
        def task_func(text): return create_autospec(str, instance=True)
    """),
    "a part of the test's mock with a distance": (_KEPT, """
        def task_func(kept):
            kept.of.__sub__.return_value = 0
            return kept.of
    """),
    "a part of the test's mock with an operator": (_KEPT, """
        def task_func(kept):
            kept.of.__sub__ = lambda self, other: 0
            return kept.of
    """),
    "what an exception holds": (_RAISED, """
        class E:
            __eq__ = bool
        def task_func(numbers): raise ValueError(E())
    """),
    "an argument that is changed": (_CHANGED, """
        class E:
            __eq__ = bool
        def task_func(numbers): numbers[:] = [E(), E(), E()]
    """),
    "a row of NumPy's": (_EQUAL, """
        import numpy
        class E(numpy.ndarray):
            def __eq__(self, other): return True
        def task_func(numbers): return numpy.zeros(3).view(E)
    """),
}


@pytest.mark.parametrize("name", OTHERS)
async def test_other_forged_values_do_not_pass(name, own_sandbox):
  tests, program = OTHERS[name]
  found = await grade(own_sandbox, program, tests)
  assert not found.correct
  assert "interferes" in found.reason, found.reason


@pytest.mark.parametrize("equal", ["bool", "lambda self, other: True"])
@pytest.mark.parametrize("result", [
    "map(E, numbers)", "filter(None, map(E, numbers))", "zip(map(E, numbers))", "iter([E(1)] * 3)",
    "{1: E(1), 2: E(2), 3: E(3)}.values()", "itertools.chain([E(1)], [E(1), E(1)])",
    "itertools.repeat(E(1), 3)", "(E(number) for number in numbers)", "reversed([E(1)] * 3)",
    "functools.partial(E, 5)", "enumerate(map(E, numbers))", "types.SimpleNamespace(of=E(1))",
    "[E(5)].pop", "Slotted()", "Hides()",
])
async def test_nor_does_what_makes_such(result, equal, own_sandbox):
  found = await grade(own_sandbox, f"""
    import functools, itertools, types
    E = type("E", (int,), {{"__eq__": {equal}, "__hash__": int.__hash__}})
    class Slotted:
        __slots__ = ("of",)
        def __init__(self): self.of = E(1)
    class Meta(type):
        def __eq__(cls, other): return True
        def __hash__(cls): return hash(list)
    class Hides(metaclass=Meta):
        def __init__(self): self.of = E(1)
    def task_func(numbers): return {result}
  """, """
import functools
import types
import unittest
class TestCases(unittest.TestCase):
    def test_1(self):
        result = task_func([3, 1, 2])
        if isinstance(result, (functools.partial, types.BuiltinFunctionType)):
            self.assertEqual(result(), [1, 2, 3])
        elif hasattr(result, "of"):
            self.assertEqual(result.of, [1, 2, 3])
        elif isinstance(result, enumerate):
            self.assertEqual([number for _, number in result], [1, 2, 3])
        elif isinstance(result, zip):
            self.assertEqual([number for number, in result], [1, 2, 3])
        else:
            self.assertEqual(list(result), [1, 2, 3])
""")
  assert not found.correct
  assert "interferes" in found.reason, found.reason


@pytest.mark.parametrize("result, beginning, expected", [
    ("Point(1, 2)", "", "(1, 2)"),
    ("Span(1, 2)", "", "Span(1, 2)"),
    ("Shade.DARK", "", "Shade.DARK"),
    ("Stack(5).top()", "class Stack:\n    def __init__(self, top): self.value = top\n"
                       "    def top(self): return self.value\n", "5"),
    ("Stack(5)", "class Stack:\n    def __init__(self, top): self.value = top\n", "Stack(5)"),
    ("(lambda: 5)", "", "5"),
    ("(number for number in [5])", "", "5"),
])
async def test_classes_of_honest_programs_pass(result, beginning, expected, own_sandbox):
  tests = """
import types
import unittest
class TestCases(unittest.TestCase):
    def test_1(self):
        result = task_func()
        if isinstance(result, types.FunctionType):
            result = result()
        if isinstance(result, types.GeneratorType):
            result = next(result)
        if "Stack" in str(type(result)):
            self.assertEqual(result.value, 5)
        else:
            self.assertEqual(result, EXPECTED)
"""
  found = await grade(own_sandbox, f"""
import collections, dataclasses, enum
Point = collections.namedtuple("Point", "x y")
@dataclasses.dataclass(order=True)
class Span:
    start: int
    end: int
class Shade(enum.Enum):
    DARK = 1
EXPECTED = {expected if "Stack" not in expected else None}
def task_func():
    return {result}
""", tests, f"{beginning}def task_func():\n")
  assert found.correct, found.reason


async def test_mocks_that_were_compared_pass(own_sandbox):
  found = await grade(own_sandbox, """
def task_func(kept):
    total = kept.number + 1 - abs(kept.number)
    if total != 1 and "a" not in kept.names and kept.status != 200 and kept == kept:
        return None if kept == 5 else kept
""", """
import unittest
from unittest.mock import MagicMock
class TestCases(unittest.TestCase):
    def test_1(self):
        kept = MagicMock()
        kept.status.__lt__.return_value = True
        for _ in range(2):
            self.assertIs(task_func(kept), kept)
            self.assertEqual(task_func(kept), kept)
            self.assertLess(task_func(kept).status, 5)
""")
  assert found.correct, found.reason


async def test_the_right_program_passes_beside_them(own_sandbox):
  assert (await grade(own_sandbox, RIGHT)).correct
