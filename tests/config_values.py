"""Configurations that tests change."""

from ml_collections import ConfigDict

from configs import quickstart


def with_values(**values) -> ConfigDict:
  """The quickstart with other values, `__` in their names for every dot."""
  config = quickstart.get_config()
  config.update_from_flattened_dict({key.replace("__", "."): v for key, v in values.items()})
  return config
