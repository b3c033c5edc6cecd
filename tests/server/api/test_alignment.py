"""Alignment through the client and a server process: links between the words of a text and those of its translation."""

import signal
from collections.abc import Iterator

import pytest
from grpc import StatusCode, aio

from dragoman import Client, Hypothesis, Translation
from dragoman.command.output import notes
from dragoman.errors import from_rpc
from dragoman.v1.decoding_pb2 import DecodingOptions
from dragoman.v1.translation_pb2 import TranslateRequest
from tests.server_process import ROOT, server_process
from tests.serving import serving

TEXT = "On 12 May 2019 Maria Silva flew from Lisbon to Toronto with Air Canada and paid 350 dollars."
COPIED = ("12", "2019", "Maria", "Silva", "Toronto", "Air", "Canada", "350")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with server_process(ROOT / "models" / "zoo" / "en-pt") as server:
        with Client(server.target) as client:
            yield client
        assert server.end(signal.SIGTERM) == 0


def partner(hypothesis: Hypothesis, word: str) -> str:
    """What the first token of a word of the translation is linked to most, as far as it stands in the text."""
    alignment = hypothesis.alignment
    assert alignment is not None
    begin = hypothesis.text.index(word)
    token = next(place for place, span in enumerate(alignment.target_spans) if span.begin <= begin < span.end)
    link = next(link for link in alignment.links if link.target == token)
    span = alignment.source_spans[link.source]
    return TEXT[span.begin : span.end]


@pytest.mark.parametrize("num_beams", [1, 4])
def test_copied_words_are_linked_to_themselves(client: Client, num_beams: int) -> None:
    assert client.model().aligns
    translation = client.translate(TEXT, num_beams=num_beams, with_alignment=True)
    [hypothesis] = translation.hypotheses
    for word in COPIED:
        assert word.startswith(partner(hypothesis, word))
    alignment = hypothesis.alignment
    assert alignment is not None
    assert len(alignment.target_spans) == hypothesis.tokens
    assert len(alignment.source_spans) == translation.source_tokens
    for place in range(hypothesis.tokens):
        assert sum(link.weight for link in alignment.links if link.target == place) < 1.001


def test_every_hypothesis_has_its_own(client: Client) -> None:
    several = client.translate(TEXT, num_beams=4, num_return_sequences=4, with_alignment=True).hypotheses
    assert len({hypothesis.text for hypothesis in several}) == 4
    for hypothesis in several:
        assert hypothesis.alignment is not None
        assert len(hypothesis.alignment.target_spans) == hypothesis.tokens
        assert partner(hypothesis, "Toronto") == "Toronto"


def test_people_are_told_the_strongest_links(client: Client) -> None:
    translation = client.translate(TEXT, num_beams=4, num_return_sequences=2, with_alignment=True)
    told = notes(TEXT, translation)
    assert len(told) == 2
    assert all('"2019" < "2019"' in line and '"Toronto" < "Toronto"' in line for line in told)


def test_a_stream_ends_with_it(client: Client) -> None:
    *_, last = client.stream_translate(TEXT, with_alignment=True)
    assert isinstance(last, Translation)
    assert last.hypotheses == client.translate(TEXT, with_alignment=True).hypotheses


def test_nobody_else_gets_it(client: Client) -> None:
    assert client.translate(TEXT).hypotheses[0].alignment is None
    assert client.translate(TEXT, with_alignment=True).hypotheses[0].alignment is not None


async def test_a_model_without_an_aligner_says_so() -> None:
    async with serving() as server:
        decoding = DecodingOptions(with_alignment=True)
        request = TranslateRequest(contents=["Two dogs bark."], target_language_code="pt", decoding=decoding)
        with pytest.raises(aio.AioRpcError) as error:
            await server.translations.Translate(request)
        assert error.value.code() is StatusCode.FAILED_PRECONDITION
        assert from_rpc(error.value).reason == "OPTION_NOT_OFFERED"
