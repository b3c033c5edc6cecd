"""Experiments that are others' with some settings changed."""

import json
from collections.abc import Mapping
from pathlib import Path

from training.config import Experiment, read_experiment

Settings = dict[str, object]
"""Tables of an experiment, and the keys above them."""

Changes = Mapping[str, Mapping[str, object] | None]
"""Other keys of some tables. None: a table is left out."""

EXAMPLES = Path(__file__).parent


def read(name: str) -> Settings:
    """The example of that name. Raises TrainingError."""
    experiment = read_experiment(EXAMPLES / f"{name}.toml", Experiment)
    return experiment.model_dump(mode="json", exclude_unset=True, exclude_none=True)


def variant(settings: Settings, changes: Changes) -> Settings:
    """An experiment with these changes."""
    changed = dict(settings)
    for name, keys in changes.items():
        former = changed.pop(name, {})
        assert isinstance(former, dict), f"{name} is a key, and no table"
        if keys is not None:
            changed[name] = {**former, **keys}
    return changed


def as_toml(settings: Settings) -> str:
    """Its tables one below the other."""
    plain = [f"{key} = {_value(value)}" for key, value in settings.items() if not isinstance(value, dict)]
    for name, table in settings.items():
        if isinstance(table, dict):
            plain += ["", f"[{name}]", *(f"{key} = {_value(value)}" for key, value in table.items())]
    return "\n".join([*plain, ""])


def _value(value: object) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_value(each)}' for key, each in value.items())} }}"
    return f"[{', '.join(map(_value, value))}]" if isinstance(value, list) else json.dumps(value)
