"""Experiments that are others' with some settings changed."""

import json
from collections.abc import Mapping
from pathlib import Path

from training.config import Experiment, read_experiment

Settings = dict[str, object]
"""Tables of an experiment, and the keys above them."""

EXAMPLES = Path(__file__).parent


def variant(name: str, output: Path, changes: Mapping[str, Mapping[str, object]]) -> Settings:
    """The example of that name, written elsewhere, with other keys in some of its tables."""
    settings: Settings = read_experiment(EXAMPLES / f"{name}.toml", Experiment).model_dump(
        mode="json", exclude_unset=True, exclude_none=True
    )
    for table, keys in changes.items():
        former = settings.get(table, {})
        assert isinstance(former, dict), f"{table} is a key of {name}"
        settings[table] = {**former, **keys}
    return settings | {"output": str(output)}


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
