import pytest

from conductor_jax.tasks.graders.units import canonical, differ, is_unit


@pytest.mark.parametrize("a, b", [
    ("cm", "centimeters"), ("inches^2", "in^2"), ("square feet", "ft^2"),
    ("m/s", "meters per second"), ("km/h", "km per hour"), ("cents", "cent"), ("", "cm"),
    ("apples", "oranges"), ("", "")])
def test_units_that_are_the_same_or_unknown_do_not_differ(a, b):
  assert not differ(a, b)
  assert not differ(b, a)


@pytest.mark.parametrize("a, b", [
    ("cm", "m"), ("cm^2", "cm^3"), ("m/s", "m/s^2"), ("m/s", "km/h"), ("cents", "dollars"),
    ("degree", "radians")])
def test_known_units_differ(a, b):
  assert differ(a, b)


def test_powers_are_collected():
  assert canonical("kg m^2/s^2") == (("kg", 1), ("m", 2), ("s", -2))
  assert canonical("marbles") is None


def test_units_are_known_in_the_plural():
  assert is_unit("meters") and is_unit("cm") and is_unit("feet") and not is_unit("x")
