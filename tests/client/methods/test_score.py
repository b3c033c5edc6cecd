"""`score` of both clients against a real gRPC server that says what it gets."""

from itertools import pairwise
from typing import Any

import pytest

from dragoman import InvalidArgument, Scores, TargetScore, TargetToken
from dragoman.errors import Internal
from dragoman.wire.messages import MAX_CONTENT_BYTES, MAX_CONTENTS
from dragoman.wire.scoring import Pair, score_requests
from tests.client.clients import Call
from tests.client.fake_server import FakeServer, serving

ONE = TargetScore("ab", -2.5, -1.25, 2, (TargetToken(7, "ab", 0, -2.0), TargetToken(0, "", 2, -0.5)))


def test_one_text_with_several_translations(server: FakeServer, call: Call) -> None:
    scores = call(server.target, "score", "hello", ["abcd", "ab", ""])
    assert isinstance(scores, Scores)
    assert [target.text for target in scores.targets] == ["abcd", "ab", ""]
    assert scores.targets[1] == ONE
    assert scores.source_tokens == 2 and scores.timings.total_s > 0
    assert scores.best.text == ""


def test_every_option_arrives(server: FakeServer, call: Call) -> None:
    call(server.target, "score", "hello", ["ab"], source_language="en", target_language="pt", model="m", prompt="p")
    [request] = server.requests
    assert (request.source_language_code, request.target_language_code) == ("en", "pt")
    assert (request.model, request.prompt) == ("m", "p")


def test_many_texts_are_in_order_over_several_requests(server: FakeServer, call: Call) -> None:
    texts = [f"text {number}" for number in range(50)]
    targets = [["x" * (number % 5)] * (1 + number % 3) for number in range(50)]
    scores = call(server.target, "score", texts, targets)
    assert [[target.text for target in one.targets] for one in scores] == targets
    assert len(server.requests) > 50 * 2 / MAX_CONTENTS and server.contents == texts
    assert call(server.target, "score", [], []) == []


def test_requests_have_no_more_translations_than_the_server_takes() -> None:
    pairs: list[Pair] = [(str(number), ["t"] * (1 + number % 4)) for number in range(30)]
    pairs += [("many", ["t"] * 9), ("long", ["t" * MAX_CONTENT_BYTES]), ("short", ["t"])]
    requests = list(score_requests(pairs, {}, 5))
    assert [(one.content, list(one.targets)) for request in requests for one in request.contents] == pairs
    counts = [sum(len(one.targets) for one in request.contents) for request in requests]
    assert max(counts) == 9 and sorted(counts)[-2] == 5, "the server refuses the nine by itself"
    assert [one.content for one in requests[-2].contents] == ["long"]
    assert all(a + b > 5 for a, b in pairwise(counts[:-3]))


@pytest.mark.parametrize(
    ("texts", "targets", "error", "message"),
    [
        ("a", "b", TypeError, "targets is 'b'; it must be a list of them"),
        ("a", [3], TypeError, r"targets\[0\] is 3"),
        ("a", None, TypeError, "targets is None; it must be a list of them"),
        (["a"], [3], TypeError, r"targets\[0\] is 3"),
        (["a"], [["b", 3]], TypeError, r"targets\[0\]\[1\] is 3"),
        (["a"], 3, TypeError, "targets is 3; it must be a list of them"),
        (["a", "b"], [["c"]], ValueError, "there are 2 texts, and targets of 1"),
        (["a"], ["c"], TypeError, r"targets\[0\] is 'c'; with a list of texts it must be a list of them"),
    ],
)
def test_what_does_not_go_together(
    server: FakeServer, call: Call, texts: Any, targets: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(server.target, "score", texts, targets)
    with pytest.raises(TypeError, match="unknown option 'num_beams'"):
        call(server.target, "score", "a", ["b"], num_beams=3)
    assert not server.requests


def test_a_refused_text_of_many_has_its_number(server: FakeServer, call: Call) -> None:
    texts = ["a"] * 70 + ["too long"]
    with pytest.raises(InvalidArgument, match=r"contents\[70\] has 1300 tokens"):
        call(server.target, "score", texts, [["b"]] * 71)


def test_a_reply_with_too_few_results_is_an_error(call: Call) -> None:
    with serving(FakeServer(drop_results=1)) as server, pytest.raises(Internal, match="0 results for 1 contents"):
        call(server.target, "score", "a", ["b"])
