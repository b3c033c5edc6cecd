"""Encode by both clients."""

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from typing import Any

import numpy as np
import pytest

from dragoman import Client
from dragoman.errors import Internal, InvalidArgument
from dragoman.wire.messages import CONCURRENT_REQUESTS, MAX_CONTENTS
from tests.client.clients import Call
from tests.client.fake_server import FakeServer, overloaded, serving
from tests.client.methods.answers import TIMINGS


def test_encode_one_and_many(server: FakeServer, call: Call) -> None:
    one = call(server.target, "encode", "abc")
    assert (one.values, one.source_tokens, one.timings) == ((3.0, 0.5), 2, TIMINGS)
    many = call(server.target, "encode", ["abc", "a"], normalize=True, model="en-pt")
    assert [embedding.values for embedding in many] == [(1.5, 0.25), (0.5, 0.25)]
    assert server.requests[1].model == "en-pt"
    assert (one.shape, one.truncated, one.data, one.scales) == ((2,), False, b"", ())


def test_any_number_of_texts_are_encoded_in_order(server: FakeServer, call: Call) -> None:
    texts = ["a" * (1 + number % 9) for number in range(5 * MAX_CONTENTS + 3)]
    vectors = call(server.target, "stream_encode", iter(texts), normalize=True)
    assert [vector.values[0] for vector in vectors] == [0.5 * len(text) for text in texts]
    assert sorted(len(request.contents) for request in server.requests) == [3, *[MAX_CONTENTS] * 5]
    assert call(server.target, "stream_encode", []) == []


def test_no_more_texts_are_asked_for_than_are_under_way(server: FakeServer) -> None:
    taken = []

    def texts() -> Iterator[str]:
        for number in count():
            taken.append(number)
            yield "a"

    with Client(server.target) as client, closing(client.stream_encode(texts())) as vectors:
        assert next(vectors).values == (1.0, 0.5)
        assert len(taken) <= CONCURRENT_REQUESTS * MAX_CONTENTS + 1


def test_a_refused_text_of_many_has_its_number(server: FakeServer, call: Call) -> None:
    texts = [*["a"] * (MAX_CONTENTS + 2), "too long", "b"]
    with pytest.raises(InvalidArgument, match=rf"contents\[{MAX_CONTENTS + 2}\] has 1300 tokens") as caught:
        call(server.target, "stream_encode", texts)
    assert caught.value.violations[0].field == f"contents[{MAX_CONTENTS + 2}]"


def test_what_came_before_a_refused_request_was_given(server: FakeServer) -> None:
    given = []
    with Client(server.target) as client, pytest.raises(InvalidArgument):
        for vector in client.stream_encode([*["a"] * MAX_CONTENTS, "too long"]):
            given.append(vector)
    assert len(given) == MAX_CONTENTS


def test_what_is_refused_for_a_moment_of_many_texts_is_sent_again(server: FakeServer, call: Call) -> None:
    server.failures.append(overloaded(pushback_ms=1))
    texts = ["a" * (1 + number % 5) for number in range(7 * MAX_CONTENTS)]
    vectors = call(server.target, "stream_encode", iter(texts))
    assert [vector.values[0] for vector in vectors] == [len(text) for text in texts]


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        (["a", None], TypeError, r"texts\[1\] is None; every text must be a str"),
        ("abc", TypeError, "texts is 'abc'; it must be a list of str, or what gives them"),
        ((1 / 0 for _ in "a"), ZeroDivisionError, "division"),
    ],
)
def test_what_goes_wrong_with_many_texts_is_raised(
    server: FakeServer, texts: Any, error: type[Exception], message: str
) -> None:
    with Client(server.target) as client, pytest.raises(error, match=message):
        list(client.stream_encode(texts))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"dimensions": "256"}, "dimensions is '256'; it must be a whole number"),
        ({"normalize": "yes"}, "normalize is 'yes'; it must be True or False"),
        ({"poolings": 3}, "poolings is 3; it must be a list of them"),
    ],
)
def test_an_option_of_another_kind_is_named(server: FakeServer, call: Call, options: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        call(server.target, "encode", "abc", **options)
    assert server.requests == []


def test_numbers_of_numpy_are_options_too(server: FakeServer, call: Call) -> None:
    call(server.target, "encode", "abc", dimensions=np.int64(1), normalize=np.bool_(True))
    [request] = server.requests
    assert (request.dimensions, request.normalize) == (1, True)


def test_an_answer_too_few_of_many_texts_fails(call: Call) -> None:
    with serving(FakeServer(drop_results=1)) as server, pytest.raises(Internal, match="0 results for 1 contents"):
        call(server.target, "stream_encode", ["a"])


def test_both_of_one_and_of_many(server: FakeServer, call: Call) -> None:
    translation, embedding = call(server.target, "translate_and_encode", "abc", num_beams=2, prompt="summarize")
    assert (translation.text, embedding.values) == ("ABC", (3.0,))
    many = call(server.target, "translate_and_encode", ["abc", "a"], type="float16", dimensions=1)
    assert [(translation.text, embedding.source_tokens) for translation, embedding in many] == [("ABC", 2), ("A", 2)]
    first, second = server.requests
    assert (first.decoding.num_beams, first.prompt, second.dimensions) == (2, "summarize", 1)
    with pytest.raises(TypeError, match="unknown option 'no_cache'; known are "):
        call(server.target, "translate_and_encode", "abc", no_cache=True)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"poolings": ["median"]}, ValueError, r"poolings is 'median'; it must be one of 'none', 'cls', "),
        ({"poolings": "mean"}, TypeError, r"poolings is 'mean'; it must be a list"),
        ({"type": "float64"}, ValueError, r"type is 'float64'; it must be one of 'float32', "),
        ({"truncation": "middle"}, ValueError, r"truncation is 'middle'; it must be one of 'error', 'end'"),
        ({"pooling": "mean"}, TypeError, r"unknown option 'pooling'; known are poolings, dimensions, "),
    ],
)
def test_impossible_encoding_options_are_errors_of_the_caller(
    server: FakeServer, call: Call, options: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(server.target, "encode", "abc", **options)
    assert not server.requests


def test_what_cannot_be_sent_is_refused_by_name(server: FakeServer, call: Call) -> None:
    with pytest.raises(ValueError, match=f"dimensions is {2**40}; it must be from"):
        call(server.target, "encode", "hello", dimensions=2**40)
    with pytest.raises(ValueError, match=r"poolings is \['mean'\]; it must be one of"):
        call(server.target, "encode", "hello", poolings=[["mean"]])
    assert server.requests == []
