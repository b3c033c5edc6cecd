"""Timings as the messages of the API have them."""

from dragoman.v1 import decoding_pb2
from engine.request import Timings


def write_timings(plain: Timings, message: decoding_pb2.Timings) -> None:
    """Fills the message in, seconds as durations. What is made first and then put into another is copied."""
    for seconds, duration in (
        (plain.queue, message.queue),
        (plain.encode, message.encode),
        (plain.decode, message.decode),
        (plain.total, message.total),
        (plain.tokenize, message.tokenize),
        (plain.detokenize, message.detokenize),
    ):
        duration.seconds, duration.nanos = divmod(round(seconds * 1e9), 10**9)
    message.steps, message.mean_batch_rows = plain.steps, plain.mean_batch_rows
