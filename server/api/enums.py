"""Enums of messages: their plain values."""

from collections.abc import Mapping
from typing import TypeVar

from server.errors import OptionOutOfRange

E = TypeVar("E", bound=int)
T = TypeVar("T")


def plain(field: str, value: E, known: Mapping[E, T]) -> T:
    """The plain value of an enum's. Raises OptionOutOfRange for one that this server has no name for."""
    if value not in known:
        raise OptionOutOfRange(field, value, min(known), max(known))
    return known[value]
