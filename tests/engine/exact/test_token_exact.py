"""The exported graphs, run as they are served, give the tokens and scores of Hugging Face and of PyTorch eager.

Real weights: 200 sentences with the package of models/zoo/en-pt. They go through one scheduler all at once, in random
order, so that every answer comes out of a running batch of all widths and options. Greedy search and, for every number
of beams, the default options are compared on all 200 sentences. The five other pairs of options share the sentences of
a width, each taking another fifth. What transformers says of them is kept, and asked again for some of them:
tests.engine.exact.cases.

Random weights: small models of odd shapes, each traced here, and random sources.

All hypotheses of a beam are compared, not only the best. Where two tie, rounding may put either first: other tokens are
accepted where Hugging Face itself scores them like its own, within 1e-5, and in at most 1 % of a test's answers.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from transformers import MarianConfig

from engine.cpu.decoder import CpuDecoder
from engine.native.decoder import NativeDecoder
from engine.observer import Unobserved
from engine.offline import decode
from engine.request import FinishReason, Hypothesis
from engine.runner import Runner
from engine.targets import target_rules
from export.tracing.trace import trace
from export.weights.save import save
from kernels.library import Library
from models.checkpoint import Checkpoint, load_checkpoint
from models.decoding import Decoding
from models.package.folder import Package
from tests.checkpoints import END, ZOO, random_model, sentencepiece_model, write_tokenizer
from tests.engine.exact.cases import (
    ALL_OPTIONS,
    CASES,
    DEFAULT,
    GREEDY,
    LONGEST,
    SENTENCES,
    WIDTHS,
    Case,
    Recorded,
    options,
    read_sources,
    weights_sha256,
)
from tests.kernels.conftest import library
from tests.oracles import Eager, HuggingFace, Scored, Tokens

__all__ = ["library"]

pytestmark = pytest.mark.timeout(600)

SCORE_TOLERANCE = 1e-4
SCREENED_TOLERANCE = 2e-3
"""Of scores whose sums over all tokens are made of looks in 8 bits and a few exact logits."""
TIE = 1e-5
TIES = 0.01
ROWS = 64


@dataclass
class Exported:
    """A checkpoint, exported, with its oracles."""

    checkpoint: Checkpoint
    decoder: CpuDecoder | NativeDecoder
    huggingface: HuggingFace | Recorded
    eager: Eager
    tolerance: float = SCORE_TOLERANCE
    """Of scores."""

    def decode(self, requests: Sequence[tuple[Tokens, Decoding]]) -> list[tuple[Hypothesis, ...]]:
        """The answers to all requests, which two workers run as they come."""
        rules = target_rules(self.decoder.spec.vocabulary, self.checkpoint.generation)
        with Runner(self.decoder, ROWS, 2, Unobserved()) as runner:
            return [answer.hypotheses for answer in decode(runner, rules, requests, window=len(requests))]

    def check(self, sources: Sequence[Tokens], decoding: Decoding, found: Sequence[Sequence[Hypothesis]]) -> int:
        """Compares the answers to all sources. Returns how many only tie with what they should be."""
        expected = self.huggingface.generate(sources, decoding)
        ties = 0
        for source, ours, theirs in zip(sources, found, expected, strict=True):
            self._check_scores(source, decoding, ours, theirs)
            if [hypothesis.token_ids for hypothesis in ours] != [tokens for tokens, _ in theirs]:
                self._check_tie(source, decoding, ours, theirs)
                ties += 1
        return ties

    def _check_scores(self, source: Tokens, decoding: Decoding, ours: Sequence[Hypothesis], theirs: Scored) -> None:
        scores, best = [hypothesis.score for hypothesis in ours], ours[0]
        assert scores == pytest.approx([score for _, score in theirs], abs=self.tolerance, rel=0)
        eager = self.eager.score(source, best.token_ids, decoding)
        assert best.score == pytest.approx(eager, abs=self.tolerance, rel=0)
        if decoding.num_beams == 1:
            assert best.token_ids == self.eager.greedy(source, best.token_ids, decoding)

    def _check_tie(self, source: Tokens, decoding: Decoding, ours: Sequence[Hypothesis], theirs: Scored) -> None:
        for hypothesis, (tokens, _) in zip(ours, theirs, strict=True):
            both = [self.huggingface.score(source, target, decoding) for target in (hypothesis.token_ids, tokens)]
            assert both[0] == pytest.approx(both[1], abs=TIE, rel=0), (decoding, hypothesis.token_ids, tokens)


# Real weights

Answers = dict[tuple[Decoding, int], tuple[Hypothesis, ...]]
"""By options and sentence."""


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    return Recorded()


@pytest.fixture(scope="module")
def zoo(recorded: Recorded) -> Exported:
    """By the graphs that are checked in: their output layer is the full one."""
    checkpoint = load_checkpoint(ZOO)
    decoder = CpuDecoder(Package.open(ZOO).graphs(), LONGEST, LONGEST)
    return Exported(checkpoint, decoder, recorded, Eager(checkpoint))


@pytest.fixture(scope="module")
def sources(zoo_package: Package) -> list[Tokens]:
    return read_sources(zoo_package)


@pytest.fixture(scope="module")
def answers(zoo: Exported, sources: list[Tokens]) -> Answers:
    """Of every case and sentence, decoded together."""
    assert len(set(sources)) == SENTENCES
    keys = [(case.decoding, index) for case in CASES for index in case.sentences]
    random.Random(7).shuffle(keys)
    return dict(zip(keys, zoo.decode([(sources[index], decoding) for decoding, index in keys]), strict=True))


@pytest.mark.parametrize("decoding", [GREEDY, options(4, *DEFAULT)], ids=["greedy", "beam"])
def test_hugging_face_does_not_mind_its_batches(decoding: Decoding, recorded: Recorded, sources: list[Tokens]) -> None:
    """Else its padding would not be masked, and it no oracle."""
    some = sources[::25]
    for together, source in zip(recorded.asked.generate(some, decoding), some, strict=True):
        [alone] = recorded.asked.generate([source], decoding)
        assert [tokens for tokens, _ in together] == [tokens for tokens, _ in alone]
        assert [score for _, score in together] == pytest.approx([score for _, score in alone], abs=TIE, rel=0)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_hugging_face_says_what_it_said(case: Case, recorded: Recorded, sources: list[Tokens]) -> None:
    """Of every twentieth sentence."""
    assert recorded.weights == weights_sha256(), "python -m tests.engine.exact.cases"
    some = [sources[index] for index in case.sentences][::20]
    for now, before in zip(
        recorded.asked.generate(some, case.decoding), recorded.generate(some, case.decoding), strict=True
    ):
        assert [tokens for tokens, _ in now] == [tokens for tokens, _ in before]
        assert [score for _, score in now] == pytest.approx([score for _, score in before], abs=TIE, rel=0)


@pytest.mark.parametrize("num_beams", [1, *WIDTHS])
def test_real_sentences(num_beams: int, zoo: Exported, sources: list[Tokens], answers: Answers) -> None:
    cases = [case for case in CASES if case.decoding.num_beams == num_beams]
    ties = 0
    for case in cases:
        found = [answers[case.decoding, index] for index in case.sentences]
        ties += zoo.check([sources[index] for index in case.sentences], case.decoding, found)
    assert ties <= TIES * sum(len(case.sentences) for case in cases)


def test_our_own_operators_have_the_same_scores(
    zoo: Exported, zoo_package: Package, library: Library, sources: list[Tokens]
) -> None:
    """Though they sum up only the best tokens of a row exactly, and estimate the others."""
    graphs = zoo_package.graphs()
    assert graphs.spec.native is not None
    native = replace(zoo, decoder=NativeDecoder(graphs, graphs.spec.native, library, LONGEST, LONGEST))
    for decoding in (GREEDY, options(4, *DEFAULT)):
        [case] = [case for case in CASES if case.decoding == decoding]
        some = [sources[index] for index in case.sentences]
        found = native.decode([(source, decoding) for source in some])
        assert native.check(some, decoding, found) <= TIES * len(some)


def test_a_screened_output_layer_has_the_same_tokens(
    zoo: Exported, zoo_package: Package, sources: list[Tokens]
) -> None:
    """Of every other sentence."""
    graphs = zoo_package.graphs()
    assert graphs.spec.output_layer == "screened"
    screened = replace(zoo, decoder=CpuDecoder(graphs, LONGEST, LONGEST), tolerance=SCREENED_TOLERANCE)
    for decoding in (GREEDY, options(4, *DEFAULT)):
        [case] = [case for case in CASES if case.decoding == decoding]
        some = [sources[index] for index in case.sentences[::2]]
        found = screened.decode([(source, decoding) for source in some])
        assert screened.check(some, decoding, found) <= TIES * len(some)


# Random weights


@dataclass(frozen=True)
class Shape:
    """A small Marian model."""

    width: int
    heads: int
    encoder_layers: int
    decoder_layers: int
    activation: str
    source_vocab: int
    target_vocab: int | None = None
    """None: both sides share vocabulary and embeddings."""
    tied: bool = True
    seed: int = 0
    """Of weights that make targets vary, and end."""


SHAPES = {
    "3 heads, one layer, 131 tokens": Shape(48, 3, 1, 1, "swish", 131, seed=6),
    "5 heads, 1000 tokens": Shape(80, 5, 1, 2, "gelu", 1000, seed=6),
    "two vocabularies, tied output": Shape(48, 3, 2, 1, "relu", 300, 131, seed=9),
    "two vocabularies, untied output": Shape(40, 5, 1, 3, "swish", 1000, 131, tied=False, seed=2),
}


def write(folder: Path, shape: Shape) -> None:
    """Writes a checkpoint with random weights."""
    separate = shape.target_vocab is not None
    source = sentencepiece_model(pieces=shape.source_vocab - 1)
    target = sentencepiece_model(side=1, pieces=shape.target_vocab - 1) if shape.target_vocab is not None else source
    source_vocab, target_vocab = write_tokenizer(folder, source, target, separate)
    assert (source_vocab, target_vocab) == (shape.source_vocab, shape.target_vocab or shape.source_vocab)
    config = MarianConfig(
        vocab_size=source_vocab,
        decoder_vocab_size=target_vocab,
        d_model=shape.width,
        encoder_layers=shape.encoder_layers,
        decoder_layers=shape.decoder_layers,
        encoder_attention_heads=shape.heads,
        decoder_attention_heads=shape.heads,
        encoder_ffn_dim=100,
        decoder_ffn_dim=60,
        max_position_embeddings=LONGEST,
        activation_function=shape.activation,
        scale_embedding=shape.activation == "swish",
        share_encoder_decoder_embeddings=not separate,
        tie_word_embeddings=shape.tied,
        pad_token_id=target_vocab - 1,
        decoder_start_token_id=target_vocab - 1,
        eos_token_id=END,
        forced_eos_token_id=END,
    )
    model = random_model(config, shape.seed)
    model.generation_config.bad_words_ids = [[target_vocab - 1]]
    model.save_pretrained(folder)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_random_weights(shape: Shape, tmp_path: Path) -> None:
    write(tmp_path, shape)
    checkpoint = load_checkpoint(tmp_path)
    decoder = CpuDecoder(save(trace(checkpoint.model), tmp_path), LONGEST, LONGEST)
    exported = Exported(checkpoint, decoder, HuggingFace(tmp_path), Eager(checkpoint))
    sources = random_sources(shape.source_vocab)
    chosen = [replace(decoding, max_new_tokens=40) for decoding in ALL_OPTIONS]
    found = exported.decode([(source, decoding) for decoding in chosen for source in sources])
    answers = [found[start : start + len(sources)] for start in range(0, len(found), len(sources))]
    ties = sum(exported.check(sources, decoding, answer) for decoding, answer in zip(chosen, answers, strict=True))
    assert ties <= TIES * len(found)
    assert_varied([answer[0] for answer in found], len(sources))


def random_sources(vocab: int) -> list[Tokens]:
    """Of every length, the end token included."""
    chance = random.Random(vocab)
    return [(*chance.choices(range(1, vocab - 1), k=length), END) for length in (0, 1, 3, 8, 14, 20, 31, 44)]


def assert_varied(best: list[Hypothesis], sources: int) -> None:
    """Else equal tokens would say little."""
    assert len({hypothesis.token_ids for hypothesis in best}) > sources
    reasons = Counter(hypothesis.finish_reason for hypothesis in best)
    assert set(reasons) == set(FinishReason) - {FinishReason.STOP_STRING}, "no request has a stop string"
    assert min(reasons.values()) > len(best) / 20
