"""Translate by the Python clients against a real gRPC server. What holds for one holds for both."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import AsyncClient, Client, FinishReason, Hypothesis, Reuse, Translation
from dragoman.errors import Internal, InvalidArgument
from dragoman.results.translation import Guard, Sentence, Span
from dragoman.v1 import translation_pb2
from dragoman.v1.decoding_pb2 import DecodingOptions, EarlyStopping
from dragoman.v1.translation_pb2 import SEGMENTATION_NONE, SEGMENTATION_SENTENCES, TEXT_FORMAT_HTML, TranslateRequest
from dragoman.wire import messages
from dragoman.wire.messages import CONCURRENT_REQUESTS, MAX_CONTENT_BYTES, MAX_CONTENTS, batches
from tests.client.clients import Call, call_sync
from tests.client.fake_server import WAIT_S, FakeServer, serving
from tests.client.methods.answers import HYPOTHESIS, TIMINGS, only_request


def test_one_text_gives_one_translation(server: FakeServer, call: Call) -> None:
    result = call(server.target, "translate", "hello world")
    assert (result, result.timings) == (Translation((HYPOTHESIS,), 3, TIMINGS), TIMINGS)
    assert (result.text, result.score, result.tokens) == ("HELLO WORLD", -0.5, 3)
    assert result.finish_reason is FinishReason.END_TOKEN


def test_a_list_gives_a_list_in_order_from_one_request(server: FakeServer, call: Call) -> None:
    result = call(server.target, "translate", ["b", "a", "c"])
    assert [translation.text for translation in result] == ["B", "A", "C"]
    assert only_request(server) == TranslateRequest(contents=["b", "a", "c"], decoding=DecodingOptions())


def test_a_tuple_is_as_good_as_a_list_to_type_checkers_too(server: FakeServer) -> None:
    with Client(server.target) as client:
        translations: list[Translation] = client.translate(("one", "two"))
    assert [translation.text for translation in translations] == ["ONE", "TWO"]


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (translation_pb2.REUSE_UNSPECIFIED, Reuse.NONE),
        (translation_pb2.REUSE_SHARED, Reuse.SHARED),
        (translation_pb2.REUSE_CACHED, Reuse.CACHED),
        (99, Reuse.UNKNOWN),
    ],
)
def test_whose_decoding_it_is_has_a_name(number: translation_pb2.Reuse.ValueType, told: Reuse) -> None:
    message = translation_pb2.Translation(hypotheses=[translation_pb2.Hypothesis(text="a")], reuse=number)
    assert messages.translation(message).reuse is told


def test_an_empty_list_needs_no_request(server: FakeServer, call: Call) -> None:
    assert call(server.target, "translate", []) == []
    assert call(server.target, "encode", []) == []
    assert server.requests == []


@pytest.mark.parametrize("method", ["translate", "stream_translate"])
def test_every_option_arrives(server: FakeServer, call: Call, method: str) -> None:
    call(
        server.target,
        method,
        "hello",
        source_language="en",
        target_language="pt",
        model="en-pt",
        num_beams=4,
        num_return_sequences=2,
        max_new_tokens=100,
        length_penalty=-0.5,
        early_stopping=False,
        no_cache=True,
    )
    request = only_request(server)
    assert request.no_cache
    assert (request.source_language_code, request.target_language_code, request.model) == ("en", "pt", "en-pt")
    assert {field.name: value for field, value in request.decoding.ListFields()} == {
        "num_beams": 4,
        "num_return_sequences": 2,
        "max_new_tokens": 100,
        "length_penalty": -0.5,
        "early_stopping": 1,
    }


def test_what_the_texts_are_arrives(server: FakeServer, call: Call) -> None:
    terms = {"New Car": "Carro", "x": ""}
    call(server.target, "translate", "a", format="html", segmentation="sentences", glossary=terms)
    call(server.target, "translate", "a", format=None, segmentation="none", glossary=None)
    told, untold = server.requests
    assert isinstance(told, TranslateRequest) and isinstance(untold, TranslateRequest)
    assert (told.format, told.segmentation) == (TEXT_FORMAT_HTML, SEGMENTATION_SENTENCES)
    assert [(term.source, term.target) for term in told.glossary] == [("New Car", "Carro"), ("x", "")]
    assert (untold.format, untold.segmentation, len(untold.glossary)) == (0, SEGMENTATION_NONE, 0)


def test_texts_that_cannot_be_are_refused(server: FakeServer, call: Call) -> None:
    with pytest.raises(ValueError, match="format is 'xml'; it must be one of 'plain', 'html'"):
        call(server.target, "translate", "a", format="xml")
    with pytest.raises(ValueError, match="segmentation is 'words'; it must be one of 'none', 'sentences'"):
        call(server.target, "translate", "a", segmentation="words")
    with pytest.raises(ValueError, match="format is 'html'; a stream has one sentence: call translate"):
        messages.stream_request("a", {"format": "html"})
    assert server.requests == []


def test_sentences_are_told() -> None:
    message = translation_pb2.Translation(hypotheses=[translation_pb2.Hypothesis(text="A b")])
    span = translation_pb2.Span(begin=1, end=3)
    message.sentences.add(source_span=span, target_span=span, score=-0.5, guards=[translation_pb2.GUARD_COPY])
    [sentence] = messages.translation(message).sentences
    assert sentence == Sentence(Span(1, 3), Span(1, 3), -0.5, (Guard.COPY,))


@pytest.mark.parametrize(
    ("option", "name"),
    [
        (None, "EARLY_STOPPING_UNSPECIFIED"),
        (False, "EARLY_STOPPING_HEURISTIC"),
        (True, "EARLY_STOPPING_FIRST_FINISHED"),
        ("never", "EARLY_STOPPING_NEVER"),
    ],
)
def test_early_stopping_has_the_meaning_of_hugging_face(server: FakeServer, option: Any, name: str) -> None:
    call_sync(server.target, "translate", "hello", early_stopping=option)
    decoding = only_request(server).decoding
    assert decoding.early_stopping == EarlyStopping.Value(name)


def test_an_impossible_early_stopping_is_refused(server: FakeServer, call: Call) -> None:
    with pytest.raises(ValueError, match="early_stopping: 'always' is not one of False, True, 'never'"):
        call(server.target, "translate", "hello", early_stopping="always")
    assert server.requests == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"seed": 2**64}, f"seed: .*{2**64}"),
        ({"num_beams": "four"}, "num_beams is 'four'; it must be a whole number"),
        ({"suppress_tokens": [3, 2**40]}, f"suppress_tokens: .*{2**40}"),
        ({"stop_strings": [3]}, "stop_strings: "),
        ({"bad_words": [3]}, "bad_words: "),
        ({"sequence_bias": [()]}, r"sequence_bias: \(\) is no pair; a list of"),
        ({"sequence_bias": ["ab"]}, "sequence_bias: 'ab' is no pair; a list of"),
        ({"stop_strings": "abc"}, "stop_strings: 'abc' is one text; a list"),
        ({"must_include": "abc"}, "must_include: 'abc' is one text; a list"),
        ({"bad_words": b"ab"}, "bad_words: b'ab' is one text; a list"),
        ({"suppress_tokens": b"ab"}, "suppress_tokens: b'ab' is one text; a list"),
        ({"bad_words": [b"ab"]}, "bad_words: b'ab' is bytes; a text is a str"),
        ({"target_prefix": b"ab"}, "target_prefix: b'ab' is bytes; a text is a str"),
        ({"bad_words": ["\ud800"]}, "bad_words: .*surrogates not allowed"),
        ({"target_prefix": "\ud800"}, "target_prefix has half a character at 0"),
        ({"source_language": "e\ud800"}, "source_language has half a character at 1"),
        ({"model": "\ud800"}, "model has half a character at 0"),
        ({"model": ["en-pt"]}, r"model is \['en-pt'\]; it must be a str"),
        ({"do_sample": 2**70}, f"do_sample is {2**70}; it must be True or False"),
        ({"pivot": 1.5}, "pivot is 1.5; it must be True or False"),
        ({"format": ["html"]}, r"format is \['html'\]; it must be one of 'plain', 'html'"),
        ({"glossary": {"cat": "\ud800"}}, r"glossary\['cat'\] has half a character at 0"),
        ({"glossary": {"\ud800": "cat"}}, "a term of glossary has half a character at 0"),
        ({"target_language": 3}, "target_language is 3; it must be a str"),
        ({"prompt": b"a"}, "prompt is b'a'; it must be a str"),
        ({"no_cache": "no"}, "no_cache is 'no'; it must be True or False"),
        ({"glossary": "cat"}, "glossary is 'cat'; it must be a dict from str to str"),
        ({"glossary": {"cat": 1}}, "glossary is {'cat': 1}; it must be a dict from str to str"),
        ({"timeout_s": "5"}, "timeout_s is '5'; it must be a number of seconds"),
        ({"timeout_s": None}, "timeout_s is None; it must be a number of seconds"),
    ],
)
def test_what_has_no_place_on_the_wire_is_refused_by_name(
    server: FakeServer, call: Call, options: Any, told: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        call(server.target, "translate", "hello", **options)
    assert server.requests == []


def test_options_left_out_are_not_sent(server: FakeServer, call: Call) -> None:
    call(server.target, "translate", "hello", num_beams=None)
    assert only_request(server) == TranslateRequest(contents=["hello"], decoding=DecodingOptions())


@pytest.mark.parametrize("method", ["translate", "stream_translate"])
def test_an_unknown_option_is_refused(server: FakeServer, call: Call, method: str) -> None:
    with pytest.raises(TypeError, match=r"unknown option 'beams'; known are num_beams, .*source_language"):
        call(server.target, method, "hello", beams=4)
    assert server.requests == []


def test_hypotheses_come_best_first(server: FakeServer, call: Call) -> None:
    result = call(server.target, "translate", "hello", num_beams=2, num_return_sequences=2)
    assert result.hypotheses == (
        Hypothesis("HELLO", -0.5, 2, FinishReason.END_TOKEN),
        Hypothesis("HELLO!", -1.5, 3, FinishReason.LENGTH),
    )
    assert result.text == "HELLO"


def test_a_long_list_is_split_and_stays_in_order(server: FakeServer, call: Call) -> None:
    texts = [f"text {number}" for number in range(3 * MAX_CONTENTS + 1)]
    result = call(server.target, "translate", texts)
    assert [translation.text for translation in result] == [text.upper() for text in texts]
    assert sorted(len(request.contents) for request in server.requests) == [1, *[MAX_CONTENTS] * 3]


@pytest.mark.parametrize("method", ["translate", "encode"])
@pytest.mark.parametrize("most", [1, 5, MAX_CONTENTS, 256])
def test_a_list_is_split_as_the_server_takes_it(call: Call, method: str, most: int) -> None:
    texts = [f"text {number}" for number in range(2 * MAX_CONTENTS)]
    with serving(FakeServer(max_contents=most)) as server:
        assert len(call(server.target, method, texts)) == len(texts)
        assert max(len(request.contents) for request in server.requests) == min(most, MAX_CONTENTS)


def test_the_server_is_asked_once_and_only_for_lists() -> None:
    with serving(FakeServer(max_contents=2)) as server, Client(server.target) as client:
        client.translate("a")
        client.translate(["a"])
        assert server.model_requests == []
        for _ in range(2):
            client.translate(["a", "b", "c"])
            client.encode(["a", "b", "c"])
        assert [request.name for request in server.model_requests] == [""]
        client.translate(["a", "b"], model="en-pt")
        assert [request.name for request in server.model_requests] == ["", "en-pt"]


async def test_the_server_is_asked_once_by_an_async_client_too() -> None:
    with serving(FakeServer(max_contents=2)) as server:
        async with AsyncClient(server.target) as client:
            for _ in range(2):
                await client.translate(["a", "b", "c"])
                await client.encode(["a", "b", "c"])
        assert len(server.model_requests) == 1


@pytest.mark.parametrize("method", ["translate", "encode"])
@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a", None], r"texts\[1\] is None; every text must be a str"),
        ([b"a"], r"texts\[0\] is b'a'; every text must be a str"),
        (None, "texts is None; it must be a str, or a list of them"),
        (b"a", "texts is b'a'; it must be a str, or a list of them"),
    ],
)
def test_what_is_no_text_is_named(server: FakeServer, call: Call, method: str, texts: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call(server.target, method, texts)
    assert server.requests == []


@pytest.mark.parametrize(
    ("method", "texts", "name"),
    [
        ("translate", ["a", "b \ud83d"], r"texts\[1\] has half a character at 2 \('\\ud83d', a lone surrogate\)"),
        ("translate", "\udfff", "text has half a character at 0"),
        ("stream_translate", "ab\ud800c", "text has half a character at 2"),
        ("encode", ["\ud800"], r"texts\[0\] has half a character at 0"),
        ("stream_encode", ["a", "\ud800"], r"texts\[1\] has half a character at 0"),
    ],
)
def test_a_text_with_half_a_character_is_named(
    server: FakeServer, call: Call, method: str, texts: Any, name: str
) -> None:
    """What `json` makes of half of an escaped pair, and no message can have."""
    with pytest.raises(ValueError, match=name):
        call(server.target, method, texts)


def test_a_stream_of_no_text_is_refused(server: FakeServer, call: Call) -> None:
    with pytest.raises(TypeError, match="text is None; it must be a str"):
        call(server.target, "stream_translate", None)


def test_parts_of_a_list_run_at_once_but_not_too_many(call: Call) -> None:
    texts = [f"text {number}" for number in range(MAX_CONTENTS * CONCURRENT_REQUESTS * 3)]
    with serving(FakeServer(rendezvous=CONCURRENT_REQUESTS)) as server:
        assert len(call(server.target, "translate", texts)) == len(texts)
        assert server.most_active == CONCURRENT_REQUESTS


PARTS = ["too long", *["a"] * (MAX_CONTENTS - 1), "hold"]
"""Two requests: the first is refused while the second is under way."""


def test_a_refused_part_fails_the_call_and_cancels_the_others() -> None:
    with serving(FakeServer(rendezvous=2)) as server, Client(server.target) as client:
        with pytest.raises(InvalidArgument, match="1300 tokens"):
            client.translate(PARTS)
        assert server.left.wait(WAIT_S)


async def test_a_refused_part_fails_the_async_call_and_cancels_the_others() -> None:
    with serving(FakeServer(rendezvous=2)) as server:
        async with AsyncClient(server.target) as client:
            with pytest.raises(InvalidArgument, match="1300 tokens"):
                await client.translate(PARTS)
            assert await asyncio.to_thread(server.left.wait, WAIT_S)


@given(st.lists(st.text(max_size=3) | st.just("é" * (MAX_CONTENT_BYTES // 4)), max_size=3 * MAX_CONTENTS))
def test_batches_are_in_order_within_the_limits_and_no_smaller_than_needed(texts: list[str]) -> None:
    def size(batch: list[str]) -> int:
        return sum(len(text.encode()) for text in batch)

    split = list(batches(texts))
    assert [text for batch in split for text in batch] == texts
    assert all(len(batch) <= MAX_CONTENTS for batch in split)
    assert all(size(batch) <= MAX_CONTENT_BYTES or len(batch) == 1 for batch in split)
    for batch, following in pairwise(split):
        assert len(batch) == MAX_CONTENTS or size(batch) + size(following[:1]) > MAX_CONTENT_BYTES


@pytest.mark.parametrize("method", ["translate", "encode"])
def test_a_reply_with_too_few_results_is_an_error_not_a_shift(call: Call, method: str) -> None:
    with serving(FakeServer(drop_results=1)) as server, pytest.raises(Internal, match="1 results for 2 contents"):
        call(server.target, method, ["a", "b"])


def test_a_translation_without_hypotheses_is_an_error() -> None:
    with pytest.raises(Internal, match="without hypotheses"):
        messages.translation(translation_pb2.Translation())


def test_a_finish_reason_of_a_later_server_is_unknown() -> None:
    later = translation_pb2.Hypothesis()
    later.MergeFromString(b"\x20\x63")  # field 4, finish_reason, is 99
    assert messages.translation(translation_pb2.Translation(hypotheses=[later])).finish_reason is FinishReason.UNKNOWN
