"""server.translation.translator, of vectors: against a list of requests instead of an engine."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from engine.request import Encode, Encoded
from models.encoding import Encoding, Vectors
from server.errors import EmptyContents
from server.translation.encoding.embeddings import EncodingOptions
from server.translation.translator import Translator
from tests.server.translation.engine import TIMINGS, Engine, deliver


async def test_vectors_come_with_what_is_to_be_told_of_them(translator: Translator, engine: Engine) -> None:
    call = asyncio.create_task(translator.encode(["A cat."], EncodingOptions(normalize=True)))
    [request] = await engine.submitted(1)
    assert isinstance(request, Encode)
    assert request.encoding == Encoding(normalize=True)
    vectors = Vectors(np.array([0.6, 0.8], np.float32), (2,))
    deliver(request, Encoded(vectors, TIMINGS))
    [embedding] = await call
    assert embedding.vectors is vectors and not embedding.truncated
    assert embedding.source_tokens == len(request.source_ids)
    assert embedding.timings.tokenize > 0
    assert replace(embedding.timings, tokenize=0.0) == TIMINGS


@pytest.mark.parametrize(("languages", "told"), [(("pt",), "pt"), (("pt", "en"), ""), ((), "")])
async def test_texts_of_vectors_are_in_the_only_source_language(
    languages: tuple[str, ...],
    told: str,
    translator: Translator,
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As those of translations: an NLLB puts the token of a language before them, of English unless it is said."""
    model, encode, found = replace(translator.model, source_languages=languages), translator._tokenizer.encode, set()

    def spy(text: str, target_language: str = "", source_language: str = "") -> list[int]:
        found.add(source_language)
        return encode(text)

    monkeypatch.setattr(translator._tokenizer, "encode", spy)
    monkeypatch.setattr(translator, "model", model)
    call = asyncio.create_task(translator.encode(["A cat."], EncodingOptions()))
    [request] = await engine.submitted(1)
    deliver(request, Encoded(Vectors(np.array([0.6, 0.8], np.float32), (2,)), TIMINGS))
    await call
    assert found == {told}


async def test_encode_checks_contents(translator: Translator, engine: Engine) -> None:
    with pytest.raises(EmptyContents):
        await translator.encode([], EncodingOptions())
    assert engine.requests == []
