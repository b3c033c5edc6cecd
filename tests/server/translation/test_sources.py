"""server.translation.sources: every text is checked, and tokenised off the event loop where that takes long."""

import threading
import time
from collections.abc import Sequence

import pytest
from prometheus_client import CollectorRegistry

from server.errors import BlankContent, SourceTooLong
from server.telemetry.metrics.model import ModelFamilies, ModelMetrics
from server.translation.sources import INLINE_CHARACTERS, Reading, SourceReader
from tests.serving import END, tokenizer


def reader(max_tokens: int = 128) -> SourceReader:
    return SourceReader(tokenizer(), max_tokens, ModelMetrics(ModelFamilies(CollectorRegistry()), "copy"))


def named(texts: Sequence[str]) -> dict[str, str]:
    return {f"contents[{index}]": text for index, text in enumerate(texts)}


@pytest.mark.parametrize("blank", ["", " ", "\n\t \u2003", "\u00a0" * 5000])
def test_a_blank_text_is_named(blank: str) -> None:
    with pytest.raises(BlankContent) as caught:
        reader().check(named(["A cat.", blank, "A dog."]))
    assert caught.value.field == "contents[1]"
    assert caught.value.metadata == {"characters": str(len(blank))}


async def test_a_text_of_invisible_characters_is_blank_too() -> None:
    texts = named(["\u200b\u200b"])
    reader().check(texts)
    with pytest.raises(BlankContent, match=r"contents\[0\] is blank: none of its 2 characters"):
        await reader().tokenize(texts)


async def test_the_tokenizer_is_told_both_languages(monkeypatch: pytest.MonkeyPatch) -> None:
    own, told = tokenizer(), list[tuple[str, str]]()

    def encode(text: str, target_language: str = "", source_language: str = "") -> list[int]:
        told.append((target_language, source_language))
        return type(own).encode(own, text)

    monkeypatch.setattr(own, "encode", encode)
    sources = SourceReader(own, 128, ModelMetrics(ModelFamilies(CollectorRegistry()), "copy"))
    await sources.tokenize(named(["A cat."]), Reading("pt-BR", source_language="en"))
    assert set(told) == {("pt-BR", "en")}


async def test_tokens_end_with_the_end_token() -> None:
    [source] = await reader().tokenize(named(["A cat."]))
    assert source.text == "A cat."
    assert source.token_ids[-1] == END
    assert tokenizer().decode(source.token_ids) == "A cat."
    assert 0 < source.seconds <= time.perf_counter() - source.started


async def test_as_many_tokens_as_the_model_takes_pass_and_one_more_does_not() -> None:
    text = "cat " * 50
    [source] = await reader().tokenize(named([text]))
    ids = source.token_ids
    [again] = await reader(len(ids)).tokenize(named([text]))
    assert again.token_ids == ids
    with pytest.raises(SourceTooLong) as caught:
        await reader(len(ids) - 1).tokenize(named(["cat", text]))
    assert caught.value.field == "contents[1]"
    assert caught.value.metadata == {"tokens": str(len(ids)), "max_tokens": str(len(ids) - 1)}


async def test_what_is_too_long_is_cut_if_wanted_and_keeps_its_end_token() -> None:
    whole, short = await reader().tokenize(named(["cat " * 50, "cat"]), Reading(truncate=True))
    assert not whole.truncated and not short.truncated
    cut, again = await reader(8).tokenize(named(["cat " * 50, "cat"]), Reading(truncate=True))
    assert cut.truncated and cut.token_ids == (*whole.token_ids[:7], END)
    assert not again.truncated and again.token_ids == short.token_ids


async def test_a_text_that_is_cut_keeps_all_tokens_that_stand_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def around(text: str, target_language: str, source_language: str) -> list[int]:
        return [9, *(100 + len(word) for word in text.split()), 7, 8]

    monkeypatch.setattr(tokenizer(), "encode", around)
    [cut] = await reader(6).tokenize(named(["a bb ccc dddd eeeee"]), Reading(truncate=True))
    assert cut.truncated and cut.token_ids == (9, 101, 102, 103, 7, 8)


async def test_a_text_that_is_cut_keeps_its_beginning_alone_where_nothing_stands_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As GPT-2's and Blenderbot-small's."""

    def bare(text: str, target_language: str, source_language: str) -> list[int]:
        return [100 + len(word) for word in text.split()]

    monkeypatch.setattr(tokenizer(), "encode", bare)
    [cut] = await reader(3).tokenize(named(["a bb ccc dddd eeeee"]), Reading(truncate=True))
    assert cut.truncated and cut.token_ids == (101, 102, 103)


async def test_no_more_of_a_long_text_is_tokenised_than_can_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, encode = list[int](), tokenizer().encode

    def counted(text: str, target_language: str, source_language: str) -> list[int]:
        seen.append(len(text))
        return encode(text, target_language, source_language)

    monkeypatch.setattr(tokenizer(), "encode", counted)
    reading, texts = Reading(truncate=True), named(["cat " * 100_000])
    (eight := reader(8)).check(texts, reading)
    [cut] = await eight.tokenize(texts, reading)
    assert cut.truncated and len(cut.token_ids) == 8
    assert max(seen) == 8 * tokenizer().longest_piece


async def test_a_prompt_stands_before_every_text_and_is_no_text_itself() -> None:
    [source] = await reader().tokenize(named(["a cat"]), Reading(prompt="query: "))
    assert tokenizer().decode(source.token_ids) == "query: a cat"
    assert source.text == "a cat"
    with pytest.raises(BlankContent):
        await reader().tokenize(named(["\u200b\u200b"]), Reading(prompt="query: "))


def test_a_megabyte_is_refused_without_tokenising_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer(), "encode", lambda text: pytest.fail("tokenised"))
    with pytest.raises(SourceTooLong) as caught:
        reader().check(named(["cat " * 250_000]))
    most = 128 * tokenizer().longest_piece
    assert caught.value.metadata == {"characters": "1000000", "max_characters": str(most)}


def test_what_the_characters_do_not_rule_out_is_left_to_the_tokens() -> None:
    reader().check(named(["x" * (128 * tokenizer().longest_piece)]))


@pytest.mark.parametrize(("characters", "inline"), [(INLINE_CHARACTERS, True), (INLINE_CHARACTERS + 1, False)])
async def test_long_texts_are_tokenised_on_another_thread(
    characters: int, inline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    encode = tokenizer().encode

    def spy(text: str, target_language: str, source_language: str) -> list[int]:
        threads.extend([threading.current_thread()] if text else [])
        return encode(text, target_language, source_language)

    monkeypatch.setattr(tokenizer(), "encode", spy)
    halves = ["x" * (characters // 2), "x" * (characters - characters // 2)]
    await reader(10_000).tokenize(named(halves))
    assert len(threads) == 2
    assert [thread is threading.main_thread() for thread in threads] == [inline, inline]
