"""Small programs for tasks in LiveCodeBench's columns: functions, and a fault for each.

The tasks are those of exercism's problem specifications. One function serves both forms of a task.
"""

from typing import NamedTuple

_READS_LINES = """
import json, sys
result = {name}(*(json.loads(line) for line in sys.stdin if line.strip()))
print(result if isinstance(result, str) else json.dumps(result))
"""
_AS_METHOD = """
class Solution:
    def {name}(self, *values):
        return {name}(*values)
"""


class Program(NamedTuple):
  """A function, and what makes it wrong: a part of it, and what that becomes."""

  name: str
  source: str
  right: str
  wrong: str

  def answer(self, form: str, faulty: bool = False) -> str:
    """The answer of a model that writes it, as a method ("func"), or as a program ("stdin")."""
    assert self.source.count(self.right) == 1
    source = self.source.replace(self.right, self.wrong) if faulty else self.source
    use = _AS_METHOD if form == "func" else _READS_LINES
    return f"So:\n\n```python\n{source.strip()}\n{use.format(name=self.name)}```\n"


PROGRAMS = {
    "acronym": Program("abbreviate", """
def abbreviate(phrase):
    words = phrase.replace("-", " ").replace("_", " ").split()
    return "".join(word[0].upper() for word in words if word[0].isalpha())
""", '.replace("-", " ")', ""),
    "all-your-base": Program("rebase", """
def rebase(base, digits, other):
    number = 0
    for digit in digits:
        number = number * base + digit
    result = []
    while number:
        number, digit = divmod(number, other)
        result.insert(0, digit)
    return result or [0]
""", "result or [0]", "result"),
    "armstrong-numbers": Program("isArmstrongNumber", """
def isArmstrongNumber(number):
    digits = str(number)
    return sum(int(digit) ** len(digits) for digit in digits) == number
""", "len(digits)", "3"),
    "binary-search": Program("find", """
def find(array, value):
    low, high = 0, len(array) - 1
    while low <= high:
        middle = (low + high) // 2
        if array[middle] == value:
            return middle
        low, high = (middle + 1, high) if array[middle] < value else (low, middle - 1)
""", "low <= high", "low < high"),
    "collatz-conjecture": Program("steps", """
def steps(number):
    count = 0
    while number != 1:
        number = 3 * number + 1 if number % 2 else number // 2
        count += 1
    return count
""", "3 * number + 1", "number - 1"),
    "flatten-array": Program("flatten", """
def flatten(array):
    flat = []
    for one in array:
        flat += flatten(one) if isinstance(one, list) else [] if one is None else [one]
    return flat
""", "[] if one is None else [one]", "[one]"),
    "hamming": Program("distance", """
def distance(first, second):
    return sum(a != b for a, b in zip(first, second))
""", "sum(a != b", "any(a != b"),
    "isogram": Program("isIsogram", """
def isIsogram(phrase):
    letters = [letter for letter in phrase.lower() if letter.isalpha()]
    return len(letters) == len(set(letters))
""", ".lower()", ""),
    "leap": Program("leapYear", """
def leapYear(year):
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
""", " or year % 400 == 0", ""),
    "luhn": Program("valid", """
def valid(value):
    digits = value.replace(" ", "")
    if not digits.isdecimal() or len(digits) < 2:
        return False
    total = 0
    for place, digit in enumerate(reversed(digits)):
        number = int(digit) * (1 + place % 2)
        total += number - 9 if number > 9 else number
    return total % 10 == 0
""", "number > 9", "number > 10"),
    "matching-brackets": Program("isPaired", """
def isPaired(value):
    expected = []
    for one in value:
        if one in "([{":
            expected.append(")]}"["([{".index(one)])
        elif one in ")]}" and (not expected or expected.pop() != one):
            return False
    return not expected
""", "return not expected", "return True"),
    "pascals-triangle": Program("rows", """
def rows(count):
    triangle = []
    for number in range(count):
        above = triangle[-1] if triangle else []
        triangle.append([1] * (number + 1))
        for place in range(1, number):
            triangle[-1][place] = above[place - 1] + above[place]
    return triangle
""", "above[place - 1] + above[place]", "above[place - 1] + 1"),
    "prime-factors": Program("factors", """
def factors(value):
    found, number = [], 2
    while value > 1:
        while value % number == 0:
            found.append(number)
            value //= number
        number = number + 1 if number * number <= value else value
    return found
""", "while value % number == 0", "if value % number == 0"),
    "raindrops": Program("convert", """
def convert(number):
    sounds = ((3, "Pling"), (5, "Plang"), (7, "Plong"))
    return "".join(sound for factor, sound in sounds if number % factor == 0) or str(number)
""", '(7, "Plong")', '(9, "Plong")'),
    "resistor-color-trio": Program("label", """
def label(colors):
    names = "black brown red orange yellow green blue violet grey white".split()
    tens, ones, zeros = map(names.index, colors[:3])
    value, unit = (10 * tens + ones) * 10 ** zeros, "ohms"
    for prefix in ("kiloohms", "megaohms", "gigaohms"):
        if value >= 1000:
            value, unit = value / 1000 if value % 1000 else value // 1000, prefix
    return {"value": value, "unit": unit}
""", '"megaohms", "gigaohms"', '"megaohms"'),
    "roman-numerals": Program("roman", """
def roman(number):
    values = (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1)
    letters = "M CM D CD C XC L XL X IX V IV I".split()
    text = ""
    for value, letter in zip(values, letters):
        text += letter * (number // value)
        number %= value
    return text
""", "number %= value", "number -= value * (number > value)"),
    "series": Program("slices", """
def slices(series, length):
    return [series[start:start + length] for start in range(len(series) - length + 1)]
""", "- length + 1", "- length"),
    "space-age": Program("age", """
def age(planet, seconds):
    years = {"Mercury": 0.2408467, "Venus": 0.61519726, "Earth": 1.0, "Mars": 1.8808158,
             "Jupiter": 11.862615, "Saturn": 29.447498, "Uranus": 84.016846,
             "Neptune": 164.79132}
    return round(seconds / 31557600 / years[planet], 2)
""", ", 2)", ", 1)"),
    "spiral-matrix": Program("spiralMatrix", """
def spiralMatrix(size):
    matrix = [[0] * size for _ in range(size)]
    row, column, down, right = 0, 0, 0, 1
    for number in range(1, size * size + 1):
        matrix[row][column] = number
        if matrix[(row + down) % size][(column + right) % size]:
            down, right = right, -down
        row, column = row + down, column + right
    return matrix
""", "right, -down", "-right, down"),
    "word-count": Program("countWords", """
import re
def countWords(sentence):
    return dict(Counter(re.findall(r"[a-z0-9]+(?:'[a-z]+)?", sentence.lower())))
""", "(?:'[a-z]+)?", ""),
}
