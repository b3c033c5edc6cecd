"""Every family's exported graphs, run as they are served, give the tokens of Hugging Face's `generate`.

And greedily those of CTranslate2, where its converter knows the family. Random weights, which transformers itself
saved: `tests.models.families`. `python -m tests.engine.exact 200` takes more sentences than a test does.
"""

import operator
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from engine.cpu.decoder import CpuDecoder
from engine.native.decoder import NativeDecoder
from engine.observer import Unobserved
from engine.offline import decode
from engine.request import Hypothesis
from engine.runner import Runner
from engine.targets import target_rules
from export.native.graphs import native_graphs
from export.tracing.trace import trace
from export.weights.save import save
from kernels.library import LibraryError, open_library
from models.checkpoint import bart_like, t5_like
from models.checkpoint.contents import Trained
from models.checkpoint.files.reading import read_json
from models.decoding import Decoding
from tests.checkpoints import edit_json
from tests.engine.exact.like_ctranslate2 import NO_CONVERTER, CTranslate2
from tests.models.families import BART_LIKE, LONGEST, T5_LIKE, VOCABULARY, Family, write_family
from tests.oracles import HuggingFace, Tokens

pytestmark = pytest.mark.timeout(300)
"""Tracing a family and `generate` take that together on a busy machine."""
SENTENCES = 6
SHAKES = 10
FAMILIES = BART_LIKE | T5_LIKE
NATIVE_HEADS = 3
"""Of a BART's encoder: those of our operators have multiples of 8 numbers."""
TRACED = BART_LIKE | {name: T5_LIKE[name] for name in ("t5", "umt5")}
"""To trace one takes seconds: the others' logits are compared in tests.models.checkpoint.test_t5_like."""


@dataclass(frozen=True)
class Made:
    """A family's model, saved by transformers and exported."""

    folder: Path
    trained: Trained
    decoder: CpuDecoder | NativeDecoder


@contextmanager
def make(family: Family, folder: Path) -> Iterator[Made]:
    """Writes and exports it."""
    trained = read(write_family(folder, family))
    with closing(CpuDecoder(save(trace(trained.model), folder), LONGEST, LONGEST)) as decoder:
        yield Made(folder, trained, decoder)


@contextmanager
def make_native(family: Family, folder: Path) -> Iterator[Made]:
    """As `make`, on our own operators. Raises LibraryError without them."""
    file = write_family(folder, family) / "config.json"
    if "encoder_attention_heads" in read_json(file):  # the weights are of as many numbers
        edit_json(file, encoder_attention_heads=NATIVE_HEADS)
    trained, library = read(folder), open_library()
    files = save(trace(trained.model).with_native(native_graphs(trained.model)), folder)
    assert files.spec.native is not None
    with closing(NativeDecoder(files, files.spec.native, library, LONGEST, LONGEST)) as decoder:
        yield Made(folder, trained, decoder)


@pytest.fixture(scope="module", params=TRACED)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def made(name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    with make(TRACED[name], tmp_path_factory.mktemp("family")) as found:
        yield found


def test_tokens_are_those_of_generate(made: Made) -> None:
    found = compare(made, SENTENCES)
    assert (found.equal, found.same) == ((SENTENCES, SENTENCES), 2 * SENTENCES)
    assert found.tokens > 3, "a model that repeats itself shows little"


def test_greedy_tokens_are_those_of_ctranslate2(name: str, made: Made) -> None:
    """Of the families that its converter knows with this version of transformers; of the others it says so itself."""
    if name in NO_CONVERTER:
        with pytest.raises(ValueError, match="No conversion is registered for the model configuration"):
            CTranslate2(made.folder, made.trained.generation)
    else:
        assert compare_with_ctranslate2(made, SENTENCES) == (SENTENCES, 0)


def test_tokens_of_our_own_operators_are_those_of_generate(tmp_path: Path) -> None:
    """One family is enough here: trained ones are in test_trained_families, all of them in the program."""
    try:
        open_library()
    except LibraryError as error:
        pytest.skip(str(error))
    with make_native(FAMILIES["m2m_100"], tmp_path) as made:
        found = compare(made, SENTENCES)
    assert (found.equal, found.same) == ((SENTENCES, SENTENCES), 2 * SENTENCES)


@dataclass(frozen=True)
class Compared:
    """Answers beside those of `generate`: greedy ones, and those with four beams and all their hypotheses in order."""

    equal: tuple[int, int]
    """How many have its tokens."""
    ties: tuple[int, int]
    """How many more tie with them: see `ties`."""
    same: int
    """How many of both kinds have the same bits alone as among the others."""
    tokens: int
    """How many different ones there are."""


def compare(made: Made, sentences: int) -> Compared:
    """The cache has other capacities alone than with long ones beside, and grows while rows are in use."""
    sources, asked = random_sources(sentences, made.trained.config.end_id), HuggingFace(made.folder)
    equal, tied, same, tokens = [0, 0], [0, 0], 0, set[int]()
    for search, beams in enumerate((1, 4)):
        decoding = searched(made, beams)
        found = answers(made.trained, made.decoder, sources, decoding)
        alone = [answers(made.trained, made.decoder, [source], decoding)[0] for source in sources]
        same += sum(map(operator.eq, found, alone))
        ours = {source: targets(answer) for source, answer in zip(sources, found, strict=True)}
        others = unequal(asked, ours, decoding)
        equal[search], tied[search] = sentences - len(others), ties(made.folder, others, decoding)
        tokens.update(token for found in ours.values() for token in found[0])
    return Compared((equal[0], equal[1]), (tied[0], tied[1]), same, len(tokens))


Targets = list[Tokens]


def targets(hypotheses: Sequence[Hypothesis]) -> Targets:
    """Their tokens."""
    return [hypothesis.token_ids for hypothesis in hypotheses]


def unequal(oracle: HuggingFace, answers: Mapping[Tokens, Targets], decoding: Decoding) -> dict[Tokens, Targets]:
    """Those of the answers to these sources that `generate` does not give."""
    expected = oracle.generate([*answers], decoding)
    return {
        source: ours
        for (source, ours), theirs in zip(answers.items(), expected, strict=True)
        if ours != [target for target, _ in theirs]
    }


def ties(folder: Path, answers: Mapping[Tokens, Targets], decoding: Decoding) -> int:
    """How many of the answers `generate` gives in float64, with weights as they are or moved by a rounding of float32.

    What another computation in float32 gives was decided by its roundings, then.
    """
    others = answers
    for seed in range(SHAKES):
        if others:
            oracle = HuggingFace(folder, torch.float64)
            if seed:
                oracle.shake(seed)
            others = unequal(oracle, others, decoding)
    return len(answers) - len(others)


def compare_with_ctranslate2(made: Made, sentences: int) -> tuple[int, int]:
    """How many answers of greedy search have its tokens, and how many more tie with them: see `ties`.

    But for the last of the longest, which `generate` may force.
    """
    decoding, end_id = searched(made, beams=1), made.trained.config.end_id
    sources = random_sources(sentences, end_id)
    expected = CTranslate2(made.folder, made.trained.generation).greedy(sources, decoding)
    found = answers(made.trained, made.decoder, sources, decoding)
    others = {
        source: targets(ours)
        for source, ours, theirs in zip(sources, found, expected, strict=True)
        if without_last(ours[0].token_ids, end_id, decoding) != without_last(theirs, end_id, decoding)
    }
    return sentences - len(others), ties(made.folder, others, decoding)


def without_last(target: Tokens, end_id: int, decoding: Decoding) -> Tokens:
    """Without the end, or what comes where the longest end."""
    return tuple(token for token in target[: decoding.max_new_tokens - 1] if token != end_id)


def searched(made: Made, beams: int) -> Decoding:
    """The model's own defaults, with so many beams."""
    default = made.trained.generation.decoding()
    return replace(default, max_new_tokens=40, num_beams=beams, num_return_sequences=beams)


def read(folder: Path) -> Trained:
    """The model in a folder."""
    like_t5 = read_json(folder / "config.json")["model_type"] in t5_like.FAMILIES
    return t5_like.read(folder) if like_t5 else bart_like.read(folder)


def answers(
    trained: Trained, decoder: CpuDecoder | NativeDecoder, sources: Sequence[Tokens], decoding: Decoding
) -> list[tuple[Hypothesis, ...]]:
    """Of all sources, decoded together."""
    rules = target_rules(decoder.spec.vocabulary, trained.generation)
    with Runner(decoder, 32, 2, Unobserved()) as runner:
        return [answer.hypotheses for answer in decode(runner, rules, [(source, decoding) for source in sources])]


def random_sources(sentences: int, end_id: int) -> list[Tokens]:
    """Of many lengths, the end token included."""
    chance = random.Random(7)
    return [(*chance.choices(range(5, VOCABULARY - 2), k=chance.randrange(1, 30)), end_id) for _ in range(sentences)]
