"""Classify by both clients."""

from typing import Any

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
    call(server.target, "classify", "abc", second="")
    assert list(server.requests[-1].second_contents) == [""]
    with pytest.raises(ValueError, match="grouping"):
        call(server.target, "classify", "abc", grouping="words")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"second": 3}, "second is 3; it must be a list of str"),
        ({"second": ["x", 3]}, r"second\[1\] is 3; every text must be a str"),
        ({"second": ["x", "\ud800"]}, r"second\[1\] has half a character at 0"),
        ({"second": []}, "2 texts and 0 second ones"),
        ({"most_labels": 2**40}, f"most_labels is {2**40}; it must be from"),
        ({"truncation": ["end"]}, r"truncation is \['end'\]; it must be one of"),
    ],
)
def test_what_cannot_be_sent_is_refused_by_name(server: FakeServer, call: Call, options: Any, told: str) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        call(server.target, "classify", ["abc", "a"], **options)
    assert server.requests == []
