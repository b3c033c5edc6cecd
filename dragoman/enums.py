"""The plain values of the API's enums that options have."""

from typing import Any, Literal

EarlyStopping = bool | Literal["never"]
"""When beam search ends, as in Hugging Face `generate`."""

ENUMS: dict[str, dict[Any, str]] = {
    "EarlyStopping": {
        False: "EARLY_STOPPING_HEURISTIC",
        True: "EARLY_STOPPING_FIRST_FINISHED",
        "never": "EARLY_STOPPING_NEVER",
    }
}
"""Enum -> plain value -> name on the wire. A plain value's type is the alias above that has the enum's name."""
