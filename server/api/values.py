"""What several messages of the API have: enums, and timings."""

from collections.abc import Mapping
from typing import TypeVar

from dragoman.v1 import decoding_pb2
from engine.request import Timings
from server.errors import OptionOutOfRange

E = TypeVar("E", bound=int)
T = TypeVar("T")


def plain(field: str, value: E, known: Mapping[E, T]) -> T:
    """The plain value of an enum's. Raises OptionOutOfRange for one that this server has no name for."""
    if value not in known:
        raise OptionOutOfRange(field, value, min(known), max(known))
    return known[value]


def write_timings(timings: Timings, message: decoding_pb2.Timings) -> None:
    """Fills the message in, seconds as durations. What is made first and then put into another is copied."""
    for seconds, duration in (
        (timings.queue, message.queue),
        (timings.encode, message.encode),
        (timings.decode, message.decode),
        (timings.total, message.total),
        (timings.tokenize, message.tokenize),
        (timings.detokenize, message.detokenize),
    ):
        duration.seconds, duration.nanos = divmod(round(seconds * 1e9), 10**9)
    message.steps, message.mean_batch_rows = timings.steps, timings.mean_batch_rows
