"""The Python clients against a real gRPC server. What holds for one holds for both."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing, closing
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dragoman
from dragoman import AsyncClient, Client, FinishReason, Health, Hypothesis, Reuse, TextDelta, Timings, Translation
from dragoman.errors import (
    Internal,
    InvalidArgument,
    NotFound,
)
from dragoman.results.translation import Guard, Sentence, Span
from dragoman.v1 import translation_pb2
from dragoman.v1.decoding_pb2 import DecodingOptions, EarlyStopping
from dragoman.v1.encoding_pb2 import GROUPING_ENTITIES, TRUNCATION_END
from dragoman.v1.translation_pb2 import (
    SEGMENTATION_NONE,
    SEGMENTATION_SENTENCES,
    TEXT_FORMAT_HTML,
    TranslateRequest,
)
from dragoman.wire import messages
from dragoman.wire.messages import CONCURRENT_REQUESTS, MAX_CONTENT_BYTES, MAX_CONTENTS, batches
from tests.client.clients import Call, call_sync
from tests.client.fake_server import WAIT_S, FakeServer, overloaded, serving

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
LONG = (dragoman.Label("long", 0.75),)
HYPOTHESIS = Hypothesis("HELLO WORLD", -0.5, 3, FinishReason.END_TOKEN)


def only_request(server: FakeServer) -> Any:
    assert len(server.requests) == 1
    return server.requests[0]


# Translate


def test_one_text_gives_one_translation(server: FakeServer, call: Call) -> None:
    result = call(server.target, "translate", "hello world")
    assert result == Translation((HYPOTHESIS,), 3, TIMINGS)
    assert (result.text, result.score, result.tokens) == ("HELLO WORLD", -0.5, 3)
    assert result.finish_reason is FinishReason.END_TOKEN


def test_a_list_gives_a_list_in_order_from_one_request(server: FakeServer, call: Call) -> None:
    result = call(server.target, "translate", ["b", "a", "c"])
    assert [translation.text for translation in result] == ["B", "A", "C"]
    assert only_request(server) == TranslateRequest(contents=["b", "a", "c"], decoding=DecodingOptions())


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
    with pytest.raises(ValueError, match="early_stopping is 'always'; it must be False, True or 'never'"):
        call(server.target, "translate", "hello", early_stopping="always")
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
    ],
)
def test_what_is_no_text_is_named(server: FakeServer, call: Call, method: str, texts: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call(server.target, method, texts)
    assert server.requests == []


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


# StreamTranslate


def test_a_stream_gives_deltas_and_then_the_translation(server: FakeServer, call: Call) -> None:
    *deltas, last = call(server.target, "stream_translate", "one two three")
    assert deltas == [TextDelta("ONE"), TextDelta("TWO"), TextDelta("THREE")]
    assert isinstance(last, Translation)
    assert last.text == "".join(delta.text for delta in deltas)
    assert last.timings == TIMINGS


def test_a_stream_that_fails_midway_raises(server: FakeServer) -> None:
    with Client(server.target) as client:
        events = client.stream_translate("too long")
        assert next(events) == TextDelta("TOO")
        with pytest.raises(InvalidArgument, match="1300 tokens"):
            next(events)


def test_leaving_a_stream_cancels_it(server: FakeServer) -> None:
    with Client(server.target) as client:
        with closing(client.stream_translate("hold on")) as events:
            assert next(events) == TextDelta("HOLD")
            assert server.held.wait(WAIT_S)
        assert server.left.wait(WAIT_S)


async def test_leaving_an_async_stream_cancels_it(server: FakeServer) -> None:
    async with AsyncClient(server.target) as client:
        async with aclosing(client.stream_translate("hold on")) as events:
            assert await anext(events) == TextDelta("HOLD")
            assert await asyncio.to_thread(server.held.wait, WAIT_S)
        assert await asyncio.to_thread(server.left.wait, WAIT_S)


# Encode, models, health


def test_encode_one_and_many(server: FakeServer, call: Call) -> None:
    one = call(server.target, "encode", "abc")
    assert (one.values, one.source_tokens, one.timings) == ((3.0, 0.5), 2, TIMINGS)
    many = call(server.target, "encode", ["abc", "a"], normalize=True, model="en-pt")
    assert [embedding.values for embedding in many] == [(1.5, 0.25), (0.5, 0.25)]
    assert server.requests[1].model == "en-pt"
    assert (one.shape, one.truncated, one.data, one.scales) == ((2,), False, b"", ())


def test_classify_one_and_many(server: FakeServer, call: Call) -> None:
    one = call(server.target, "classify", "abc", grouping="entities", truncation="end", most_labels=1)
    assert one == dragoman.Classification(LONG, (dragoman.LabelledSpan(0, 3, LONG),), 2, TIMINGS, False)
    sent = server.requests[0]
    assert (sent.grouping, sent.truncation, sent.most_labels) == (GROUPING_ENTITIES, TRUNCATION_END, 1)
    assert [found.spans[0].end for found in call(server.target, "classify", ["abc", "a"])] == [3, 1]
    with pytest.raises(ValueError, match="grouping"):
        call(server.target, "classify", "abc", grouping="words")


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


def test_models_carry_every_field(server: FakeServer, call: Call) -> None:
    (model,) = call(server.target, "models")
    assert call(server.target, "model") == call(server.target, "model", "en-pt") == model
    assert (model.name, model.source_languages, model.target_languages) == ("en-pt", ("en",), ("pt",))
    assert (model.max_source_tokens, model.max_new_tokens, model.max_beams) == (512, 256, 16)
    default = model.default_decoding
    assert isinstance(default, dragoman.Decoding)
    assert (default.num_beams, default.num_return_sequences, default.max_new_tokens) == (4, 1, 256)
    assert (default.length_penalty, default.early_stopping) == (0.5, "never")
    assert (model.width, model.encoder_layers, model.decoder_layers, model.vocabulary_size) == (2, 6, 1, 32001)
    assert (model.precision, model.execution_provider) == ("fp32", "CPUExecutionProvider")
    assert (model.package_sha256, model.checkpoint_sha256) == ("ab" * 32, "cd" * 32)
    assert model.tasks == ("translate", "encode")
    assert (model.state, model.workers, model.rows, model.memory_bytes) == ("serving", 2, 64, 1_070_000_000)
    own = dragoman.EncodingDefaults(("mean", "sum_sqrt"), 4, True, {"query": "query: "}, "query")
    assert model.default_encoding == own
    assert (model.prompts, model.prompt) == ({"summarize": "summarize: "}, "summarize")
    assert (model.labels, model.labels_tokens) == (("long", "short"), True)


def test_an_unknown_model_is_not_found(server: FakeServer, call: Call) -> None:
    with pytest.raises(NotFound, match="no model fr-de") as caught:
        call(server.target, "model", "fr-de")
    assert caught.value.reason == "MODEL_NOT_FOUND"


def test_health_of_the_server_and_of_a_service(server: FakeServer, call: Call) -> None:
    assert call(server.target, "health") is Health.SERVING
    assert call(server.target, "health", "dragoman.v1.EncodingService") is Health.NOT_SERVING
    with pytest.raises(NotFound):
        call(server.target, "health", "no.such.Service")
