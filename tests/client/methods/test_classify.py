"""Classify by both clients."""

import pytest

import dragoman
from dragoman.v1.encoding_pb2 import GROUPING_ENTITIES, TRUNCATION_END
from tests.client.clients import Call
from tests.client.fake_server import FakeServer
from tests.client.methods.answers import TIMINGS

LONG = (dragoman.Label("long", 0.75),)


def test_classify_one_and_many(server: FakeServer, call: Call) -> None:
    one = call(server.target, "classify", "abc", grouping="entities", truncation="end", most_labels=1)
    assert one == dragoman.Classification(LONG, (dragoman.LabelledSpan(0, 3, LONG),), 2, TIMINGS, False)
    assert one.timings == TIMINGS
    sent = server.requests[0]
    assert (sent.grouping, sent.truncation, sent.most_labels) == (GROUPING_ENTITIES, TRUNCATION_END, 1)
    assert [found.spans[0].end for found in call(server.target, "classify", ["abc", "a"])] == [3, 1]
    call(server.target, "classify", ["abc", "a"], second=["x", "y"])
    assert list(server.requests[-1].second_contents) == ["x", "y"]
    with pytest.raises(ValueError, match="2 texts and 1 second ones"):
        call(server.target, "classify", ["abc", "a"], second="x")
    with pytest.raises(ValueError, match="grouping"):
        call(server.target, "classify", "abc", grouping="words")
