"""server.http.compatible.detection: when what tells languages apart is loaded, and what is kept of it."""

import asyncio
import gc
from collections.abc import Sequence
from threading import Event

import pytest
from py3langid.langid import LanguageIdentifier

from server.http.compatible.detection import Detected, Detector, Langid
from tests.serving import langid


def identifiers() -> int:
    """How many there are, each with tables of its own."""
    gc.collect()
    return sum(isinstance(one, LanguageIdentifier) for one in gc.get_objects())


def test_nothing_is_kept_of_languages_that_are_not_served() -> None:
    before = identifiers()
    told_apart = Langid(["en", "pt-BR", "xx"])
    assert identifiers() == before + 1
    likely = told_apart._identifier.nb_ptc
    held = likely if likely.base is None else likely.base
    assert likely.shape[1] == 2 and held.nbytes == likely.nbytes
    assert [found.language for found in told_apart.rank("Bom dia a todos, como estão?")] == ["pt-BR", "en"]


def languages(ranked: Sequence[Sequence[Detected]]) -> list[list[str]]:
    return [[one.language for one in of_text] for of_text in ranked]


class Loads:
    """Stands in for what takes most of a second, so that a test can say when it ends."""

    def __init__(self) -> None:
        self.of: list[tuple[str, ...]] = []
        self.ends = Event()
        self.broken = False

    def __call__(self, languages: tuple[str, ...]) -> "Loads":
        self.of.append(languages)
        assert self.ends.wait(10)
        if self.broken:
            raise OSError("no such file")
        return self

    def rank(self, text: str) -> Sequence[Detected]:
        return [Detected(one, 1.0) for one in self.of[-1]]


async def test_it_is_loaded_once_somebody_asks_and_again_for_other_languages() -> None:
    loads, served = Loads(), ["en", "pt"]
    detector = Detector(lambda: served, loads)
    assert loads.of == []
    first, other = (asyncio.create_task(detector.rank(["A cat."])) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()  # who leaves takes it from nobody
    loads.ends.set()
    assert languages(await other) == [["en", "pt"]] and first.cancelled()
    assert languages(await detector.rank(["A dog.", "Two dogs."])) == 2 * [["en", "pt"]]
    assert loads.of == [("en", "pt")]
    served.append("de")
    assert languages(await detector.rank(["A dog."])) == [["en", "pt", "de"]]
    assert loads.of == [("en", "pt"), ("en", "pt", "de")]


async def test_whoever_asks_after_it_could_not_be_loaded_has_it_loaded_again() -> None:
    loads = Loads()
    loads.ends.set()
    loads.broken = True
    detector = Detector(lambda: ["en"], loads)
    for _ in range(2):
        with pytest.raises(OSError, match="no such file"):
            await detector.rank(["A cat."])
    loads.broken = False
    assert await detector.rank(["A cat."]) == [[Detected("en", 1.0)]] and len(loads.of) == 3


async def test_texts_without_letters_tell_nothing() -> None:
    detector = Detector(lambda: ["en", "pt"], langid)
    texts = ["1 2 3", "Onde fica a estação de comboios?"]
    assert languages(await detector.rank(texts)) == [[], ["pt", "en"]]
