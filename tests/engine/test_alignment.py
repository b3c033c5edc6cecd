"""Names and numbers that translations copy are linked to the same ones in the source, whatever shares the batch."""

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from bench.sentences import flores
from engine.devices.session import CPU
from engine.errors import NotOffered
from engine.loading.load import Limits, Loadable, load
from engine.request import Event, Failed, Finished, Hypothesis, Translate
from engine.runner import Runner
from export.verification.alignment import LEAST_RIGHT
from models.decoding import Decoding
from models.package.folder import Package
from models.tokenizers.tokenizer import Tokenizer, pieces, without_spaces

ZOO = Path("models/zoo")
ALIGNED = Decoding(max_new_tokens=99, with_alignment=True)
NAMES = {
    "en-pt": "On 12 May 2019 Maria Silva flew from Lisbon to Toronto with Air Canada and paid 350 dollars.",
    "pt-en": "Em 12 de maio de 2019 Maria Silva voou para Toronto com a Air Canada e pagou 350 euros.",
}
COPIED = ("12", "2019", "Maria", "Silva", "Toronto", "Air", "Canada", "350")


def ask(runner: Runner, loadable: Loadable, source: tuple[int, ...], decoding: Decoding) -> Future[Event]:
    answer = Future[Event]()
    runner.submit(Translate(source, answer.set_result, decoding=decoding, rules=loadable.rules))
    return answer


def found(answer: Future[Event]) -> tuple[Hypothesis, ...]:
    event = answer.result()
    assert isinstance(event, Finished), event
    return event.hypotheses


def words(tokenizer: Tokenizer, source: str, one: Hypothesis) -> dict[str, str]:
    """What the tokens of each copied word of a target are linked to most, in the source."""
    target, spans = tokenizer.decode(one.token_ids), tokenizer.spans(source)
    partners: dict[str, str] = {}
    places = [without_spaces(target, begin, begin + len(text)) for text, begin in pieces(tokenizer, one.token_ids)]
    for word in COPIED:
        begin = target.index(word)
        [first, *_] = [place for place, (at, end) in enumerate(places) if begin <= at < end <= begin + len(word)]
        best = next(link for link in one.links if link.target == first)
        partners[word] = source[slice(*spans[best.source])]
    return partners


@pytest.mark.parametrize("name", NAMES)
def test_copied_names_and_numbers(name: str) -> None:
    package = Package.open(ZOO / name)
    aligner = package.manifest.graphs.aligner
    assert aligner is not None and aligner.right >= LEAST_RIGHT * aligner.tokens
    model, tokenizer = Loadable.of(package), package.tokenizer()
    text, others = NAMES[name], flores(name[:2])[:6]
    source = tuple(tokenizer.encode(text))
    with load(model, CPU, Limits(workers=1)) as runner:
        alone = found(ask(runner, model, source, ALIGNED))
        beside = [ask(runner, model, tuple(tokenizer.encode(other)), Decoding(max_new_tokens=60)) for other in others]
        [together] = found(ask(runner, model, source, ALIGNED))
        for other in beside:
            assert all(one.links == () for one in found(other)), "who does not ask gets none"
    assert alone == (together,)
    for word, partner in words(tokenizer, text, together).items():
        assert partner and word.startswith(partner), (word, partner)


def test_models_that_do_not_align() -> None:
    package = Package.open(ZOO / "en-pt")
    graphs = package.graphs()
    spec = graphs.spec.model_copy(update={"aligner": None})
    older = Loadable(replace(graphs, spec=spec), package.manifest.generation)
    with load(older, CPU, Limits(workers=1)) as runner:
        event = ask(runner, older, (5, 0), ALIGNED).result()
    assert isinstance(event, Failed) and isinstance(event.error, NotOffered)
    assert "an alignment" in str(event.error)
