"""The engine in this process answers as a server does that is asked through gRPC."""

import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dragoman import Cancelled, Client, DragomanError, FailedPrecondition, Health, InvalidArgument
from dragoman.local import Translator
from server.catalog.served_model import ServedModel
from server.loaded import LoadedModel
from tests.server_process import ROOT, eventually, server_process

PACKAGE = ROOT / "models" / "zoo" / "en-pt"
SENTENCES = [
    line.partition("\t")[0]
    for line in (ROOT / "tests" / "data" / "flores-dev.en-pt.tsv").read_text(encoding="utf-8").splitlines()[:40]
]


@pytest.fixture(scope="module")
def translator() -> Iterator[Translator]:
    with Translator(PACKAGE, workers=2) as translator:
        yield translator


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with server_process(PACKAGE) as server, Client(server.target) as client:
        yield client


CALLS: dict[str, Callable[[Client], Any]] = {
    "greedy": lambda c: c.translate(SENTENCES),
    "beams": lambda c: c.translate(SENTENCES[:8], num_beams=4, num_return_sequences=3, with_tokens=True),
    "penalties": lambda c: c.translate(SENTENCES[:8], repetition_penalty=1.3, no_repeat_ngram_size=2),
    "words": lambda c: c.translate(SENTENCES[:8], bad_words=["que"], sequence_bias=[("de", -2.5)]),
    "prefix": lambda c: c.translate(SENTENCES[0], target_prefix="Hoje,"),
    "samples": lambda c: c.translate(SENTENCES[:4], do_sample=True, seed=7, top_p=0.9),
    "stream": lambda c: list(c.stream_translate(SENTENCES[0], no_cache=True))[-1],
    "encode": lambda c: c.encode(SENTENCES[:8], poolings=["mean", "max"], type="int8", normalize=True),
    "vectors": lambda c: list(c.stream_encode(SENTENCES)),
    "both": lambda c: c.translate_and_encode(SENTENCES[:4], num_beams=2),
    "score": lambda c: c.score(SENTENCES[:2], [["Olá."], ["Bom dia.", "Boa noite."]]),
    "models": lambda c: [replace(one, memory_bytes=0) for one in c.models()],
    "health": lambda c: c.health(),
}


@pytest.mark.parametrize("name", CALLS)
def test_answers_are_those_of_a_server(name: str, translator: Translator, client: Client) -> None:
    assert CALLS[name](translator) == CALLS[name](client)


@pytest.mark.parametrize(
    "options", [{}, {"target_prefix": "Onde é"}, {"return_alternatives": True, "num_return_sequences": 2}]
)
def test_a_forced_first_token_is_a_part_of_the_text(translator: Translator, options: dict[str, Any]) -> None:
    begins = f"Bem {options.get('target_prefix', '')}".strip()
    found = translator.translate("Where is the station?", forced_bos_token="Bem", **options)
    assert all(one.text.startswith(begins) for one in found.hypotheses)
    *deltas, last = translator.stream_translate("Where is the station?", forced_bos_token="Bem", **options)
    assert "".join(delta.text for delta in deltas) == last.text == found.text


def test_a_forced_first_token_before_alternatives_takes_room(translator: Translator) -> None:
    options: dict[str, Any] = {"forced_bos_token": "Bem", "return_alternatives": True}
    with pytest.raises(InvalidArgument, match="max_new_tokens is 512; it must be from 1 to 511"):
        translator.translate("Where is the station?", max_new_tokens=512, **options)
    assert translator.translate("Where is the station?", min_new_tokens=511, **options).tokens == 511


def test_a_forced_first_token_comes_once_in_a_second_try(translator: Translator) -> None:
    options: dict[str, Any] = {"return_alternatives": True, "num_return_sequences": 2, "max_new_tokens": 16}
    bias, text = [("dia", 25.0)], "Where is the station?"
    found = translator.translate(text, forced_bos_token="Bem", sequence_bias=bias, retry_on_guard=True, **options)
    assert found.retried
    assert [one.text.count("Bem") for one in found.hypotheses] == [1, 1]


REFUSED: dict[str, Callable[[Client], Any]] = {
    "blank": lambda c: c.translate([*SENTENCES, " "]),
    "too long": lambda c: c.translate("word " * 2000),
    "language": lambda c: c.translate("Hello", target_language="de"),
    "beams": lambda c: c.translate("Hello", num_beams=1000),
    "conflict": lambda c: c.translate("Hello", num_beams=4, do_sample=True),
    "prompt": lambda c: c.translate("Hello", prompt="shout"),
    "model": lambda c: c.translate("Hello", model="other"),
    "targets": lambda c: c.score("Hello", []),
    "stream": lambda c: list(c.stream_translate("")),
    "dimensions": lambda c: c.encode("Hello", dimensions=10**6),
    "size": lambda c: c.translate("a" * 2_200_000),  # a server's gRPC refuses more before our handler sees it
    "service": lambda c: c.health("dragoman.v1.None"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_those_of_a_server(name: str, translator: Translator, client: Client) -> None:
    ours, servers = (_refusal(REFUSED[name], one) for one in (translator, client))
    assert ours == (_without_kserve(servers) if name == "service" else servers)


def _without_kserve(refusal: tuple[object, ...]) -> tuple[object, ...]:
    """What a server says that has no face of KServe's, as a process that translates for itself has none."""
    kind, text, *rest = refusal
    assert isinstance(text, str)
    assert text.count(', "inference.GRPCInferenceService"') == 1
    return kind, text.replace(', "inference.GRPCInferenceService"', ""), *rest


def _refusal(ask: Callable[[Client], Any], client: Client) -> tuple[object, ...]:
    with pytest.raises(DragomanError) as caught:
        ask(client)
    error = caught.value
    return type(error), error.message, error.code, error.reason, error.metadata, error.violations


def test_it_may_be_shared_between_threads(translator: Translator) -> None:
    expected = [one.text for one in translator.translate(SENTENCES)]

    def translate(_: int) -> list[str]:
        found = translator.translate(SENTENCES, no_cache=True, timeout_s=100)  # all of them may take half a minute
        return [one.text for one in found]

    with ThreadPoolExecutor(8) as threads:
        assert [*threads.map(translate, range(8))] == [expected] * 8


def test_an_answer_that_is_late_is_refused_as_a_server_does(translator: Translator) -> None:
    with pytest.raises(DragomanError) as caught:
        translator.translate(SENTENCES[0], num_beams=4, no_cache=True, timeout_s=0.0005)
    assert caught.value.reason == "WOULD_BE_LATE" or caught.value.code.name == "DEADLINE_EXCEEDED"


def test_closing_it_ends_its_threads_and_its_calls() -> None:
    before = set(threading.enumerate())
    translator = Translator(PACKAGE, workers=1)
    assert not before.issuperset(threading.enumerate())
    events = translator.stream_translate(" ".join(SENTENCES[:4]), no_cache=True)
    next(events)
    with ThreadPoolExecutor(1) as thread:
        under_way = thread.submit(translator.translate, SENTENCES, no_cache=True, num_beams=4)
        translator.close()
        with pytest.raises((DragomanError, ValueError), match=r"shutting down|closed"):
            under_way.result()
    with pytest.raises(Cancelled, match="the client was closed"):
        list(events)
    with pytest.raises(ValueError, match="this client is closed"):
        translator.translate("Hello")
    translator.close()
    assert before.issuperset(threading.enumerate())


def test_one_that_is_closed_keeps_nothing_of_its_models() -> None:
    """Whoever still has it, as a notebook has what stands in a `with`."""

    def models() -> int:
        gc.collect()
        return sum(type(one) in (LoadedModel, ServedModel) for one in gc.get_objects())

    before = models()
    with Translator(PACKAGE, workers=1) as translator:
        assert translator.translate("Good morning.").text == "Bom dia."
        assert models() > before
    assert models() == before


def test_one_that_nobody_has_any_more_ends_its_threads() -> None:
    before = set(threading.enumerate())
    translator = Translator(PACKAGE, workers=1)
    assert translator.translate("Good morning.").text == "Bom dia."
    assert not before.issuperset(threading.enumerate())
    del translator
    gc.collect()
    eventually(lambda: before.issuperset(threading.enumerate()))


def test_one_that_is_left_open_ends_with_its_process() -> None:
    code = f"""
import sys
from dragoman.local import Translator
translator = Translator({str(PACKAGE)!r})
print(translator.translate("Good morning.").text, translator.health().value)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"Bom dia. {Health.SERVING.value}\n", "")


@pytest.mark.parametrize(
    "last",
    ["del translator", "import atexit; atexit.register(translator.close)", "next(translator.stream_translate('a'))"],
)
def test_one_that_is_closed_as_its_process_ends_says_nothing(last: str) -> None:
    """Nothing can be handed to another thread by then."""
    code = f"""
from dragoman.local import Translator
translator = Translator({str(PACKAGE)!r}, workers=1)
{last}
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_forked_process_has_no_engine_until_it_makes_one() -> None:
    code = f"""
import os
from dragoman.local import Translator
with Translator({str(PACKAGE)!r}, workers=1) as translator:
    if os.fork() == 0:
        try:
            translator.translate("Good morning.", timeout_s=5)
        except ValueError as error:
            print(error)
        with Translator({str(PACKAGE)!r}, workers=1) as own:
            print(own.translate("Good morning.").text, flush=True)
        translator.close()
        os._exit(0)
    os.wait()
    print(translator.translate("Good morning.").text)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    told = "the translator is of the process that this one was forked from, and has no engine here: make another one"
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{told}\nBom dia.\nBom dia.\n", "")


def test_what_cannot_be_used_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FailedPrecondition, match=r"is not a package: manifest\.json cannot be read"):
        Translator(tmp_path)
    for path in "a" * 300, "a\0b", "\ud800":
        with pytest.raises(FailedPrecondition, match=r"is not a package: manifest\.json cannot be read"):
            Translator(path)
    with pytest.raises(FailedPrecondition, match="workers is 0"):
        Translator(PACKAGE, workers=0)
    with pytest.raises(FailedPrecondition, match=r"; 1 MB may be used .*: not even one row fits: give it more, such"):
        Translator(PACKAGE, memory_mb=1)
    wrong: list[Any] = [5, None, [], [5], b"models/zoo/en-pt"]
    for package in wrong:
        with pytest.raises(TypeError, match="it must be the folder of a package, or several of them"):
            Translator(package)
    monkeypatch.setenv("DRAGOMAN_MAX_NEW_TOKENS", "3")  # a server's, and not of this one
    with Translator(str(PACKAGE), workers=1) as translator:
        assert translator.model().max_new_tokens == 512
        with pytest.raises(
            FailedPrecondition, match=f'the package of model "{translator.model().name}" is not taken up'
        ):
            translator.reload()


def test_without_the_engine_its_packages_are_named() -> None:
    code = "import sys; sys.modules['onnxruntime'] = None; import dragoman.local"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: dragoman.local runs the engine in this process, and onnxruntime is not installed here: "
        "in a checkout of Dragoman, `make setup`, or `pip install -e '.[cpu]'` (for a GPU '.[cuda]')"
    )
