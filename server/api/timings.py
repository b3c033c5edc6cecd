"""Timings as the messages of the API have them."""

from google.protobuf.duration_pb2 import Duration

from dragoman.v1 import decoding_pb2
from engine.request import Timings


def timings(plain: Timings) -> decoding_pb2.Timings:
    """Seconds as durations."""
    return decoding_pb2.Timings(
        queue=_duration(plain.queue),
        encode=_duration(plain.encode),
        decode=_duration(plain.decode),
        total=_duration(plain.total),
        steps=plain.steps,
        tokenize=_duration(plain.tokenize),
        detokenize=_duration(plain.detokenize),
        mean_batch_rows=plain.mean_batch_rows,
    )


def _duration(seconds: float) -> Duration:
    whole, nanos = divmod(round(seconds * 1e9), 10**9)
    return Duration(seconds=whole, nanos=nanos)
