"""What the fake server answers, as the clients have it."""

from typing import Any

from dragoman import FinishReason, Hypothesis, Timings
from tests.client.fake_server import FakeServer

TIMINGS = Timings(
    queue_s=0.001,
    encode_s=0.002,
    decode_s=0.03,
    total_s=0.033,
    steps=3,
    tokenize_s=0.0001,
    detokenize_s=0.0002,
    mean_batch_rows=2.5,
)
HYPOTHESIS = Hypothesis("HELLO WORLD", -0.5, 3, FinishReason.END_TOKEN)


def only_request(server: FakeServer) -> Any:
    assert len(server.requests) == 1
    return server.requests[0]
