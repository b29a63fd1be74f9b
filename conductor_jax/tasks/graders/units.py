"""Units of measure behind a number: what they are called, and whether two are the same."""

import re

# The names of one unit, in lower case, singular.
_NAMES = (
    "mm millimeter millimetre", "cm centimeter centimetre", "m meter metre",
    "km kilometer kilometre", "nm nanometer nanometre", "µm μm um micrometer micrometre micron",
    "in inch inche", "ft foot feet", "yd yard", "mi mile", "mg milligram", "g gram gm",
    "kg kilogram", "lb pound", "oz ounce", "s sec second", "min minute", "h hr hour", "day", "week",
    "month", "yr year", "ml milliliter millilitre", "l liter litre", "gal gallon", "cent ¢ ct",
    "dollar usd", "euro eur €", "£ gbp", "degree deg °", "rad radian", "mph", "n newton", "j joule",
    "kj kilojoule", "w watt", "kw kilowatt", "v volt", "a amp ampere", "ω ohm", "hz hertz",
    "pa pascal", "kpa", "mpa", "bar", "atm", "mol mole", "k kelvin", "ev", "kev", "mev", "gev",
    "c coulomb", "t tesla", "acre", "hectare ha")
_CANONICAL = {name: names.split()[0] for names in _NAMES for name in names.split()}
_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_TERM = re.compile(r"(/|per\b)|([^\W\d_]+|[¢°€£])(?:\s*\^?\s*\{?(-?[0-9])\}?)?")


def is_unit(word: str) -> bool:
  """Whether a word is the name of a unit, alone or in the plural."""
  return _name(word) in _CANONICAL.values()


def _name(word: str) -> str:
  word = word.lower()
  for form in (word, word.removesuffix("s"), word.removesuffix("es")):
    if form in _CANONICAL:
      return _CANONICAL[form]
  return word


def canonical(unit: str) -> tuple[tuple[str, int], ...] | None:
  """The unit as sorted powers of known units, None where it is empty or holds an unknown one."""
  powers: dict[str, int] = {}
  sign, raised = 1, 1
  for division, word, power in _TERM.findall(unit):
    if division:
      sign = -1
    elif word.lower() in _POWERS:
      raised = _POWERS[word.lower()]
    elif (name := _name(word)) in _CANONICAL.values():
      powers[name] = powers.get(name, 0) + sign * raised * int(power or 1)
      raised = 1
    else:
      return None
  return tuple(sorted(powers.items())) or None


def differ(a: str, b: str) -> bool:
  """Whether two units are known and not the same; an unknown or missing one differs from none."""
  known = canonical(a), canonical(b)
  return None not in known and known[0] != known[1]
