"""What a search may ask of a step besides the best tokens: both decoders against PyTorch and transformers."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import MarianMTModel

from engine.cpu.decoder import CpuDecoder
from engine.cuda.decoder import CudaDecoder
from engine.decoder import Ask, Cache, Decoder, Found
from engine.devices.session import CPU
from engine.devices.transfers import HostTransfers
from engine.errors import NotOffered
from engine.loading.load import Loadable, open_decoder
from engine.logits.whole_rows import attend
from export.tracing.trace import trace
from export.tracing.variant import variant
from export.verification.reference import log_probs
from export.weights.save import save
from models.checkpoint import load_checkpoint
from models.layers import DecoderLayer
from models.package.derived import vocabulary
from models.package.folder import Package
from models.package.graph_files import GraphFiles
from models.package.shortlist import Shortlist
from models.transformer import Transformer
from tests.checkpoints import ROOT
from tests.engine.traced import shared_model, traced
from tests.models.test_transformer import config, random_model
from tests.shortlists import random_lists, write

pytestmark = pytest.mark.timeout(300)

LONGEST = 48
TOKENS = 700
ATOL = 3e-5
NAMED = (5, 0, 131, 699)
ALL = Ask(best=3, named=True, normaliser=True, logits=True, attention=True)
SHAPES = {
    "attention": config(source_vocab_size=TOKENS, target_vocab_size=TOKENS, decoder_layers=3),
    "recurrent, pre-norm": config(source_vocab_size=TOKENS, target_vocab_size=TOKENS, decoder_cell="ssru", norm="pre"),
}

Tokens = tuple[int, ...]


@dataclass
class Model:
    """A model and its graphs."""

    model: Transformer
    graphs: GraphFiles

    def open(self, on_device: bool) -> Decoder[Any]:
        return (
            CudaDecoder(self.graphs, LONGEST, LONGEST, CPU) if on_device else CpuDecoder(self.graphs, LONGEST, LONGEST)
        )


@pytest.fixture(scope="module", params=[(shape, shortlist) for shape in SHAPES for shortlist in (False, True)], ids=str)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    shape, shortlist = request.param
    transformer, folder = shared_model(SHAPES[shape]), tmp_path_factory.mktemp("graphs")
    graphs = save(traced(transformer, shortlist), folder)
    if shortlist:
        file = write(folder / "lex.bin", random_lists(TOKENS, TOKENS))
        graphs = replace(graphs, shortlist=Shortlist.load(file, vocabulary(transformer.config)))
    return Model(transformer, graphs)


@dataclass
class Row:
    source: Tokens
    fed: Tokens


class Batch:
    """A cache that is asked all kinds of things, and what each row was fed."""

    def __init__(self, decoder: Decoder[Any], rows: int) -> None:
        self.cache: Cache[Any] = decoder.open_cache(rows)
        self._decoder = decoder
        self.rows: list[Row] = []

    def join(self, *sources: Tokens) -> None:
        for source, encoded in zip(sources, self._decoder.encode(sources), strict=True):
            self.cache.join(encoded)
            self.rows.append(Row(source, ()))

    def step(self, tokens: Sequence[int], ask: Ask) -> Found:
        self.cache.begin_step(tokens, ask)
        self.rows = [Row(row.source, (*row.fed, token)) for row, token in zip(self.rows, tokens, strict=True)]
        return self.cache.end_step()

    def take(self, parents: Sequence[int]) -> None:
        self.cache.take(parents)
        self.rows = [self.rows[parent] for parent in parents]


def play(batch: Batch, check: Any, asks: Sequence[Ask]) -> None:
    """Rows that join, are widened to beams and leave, each with a source of its own length."""
    chance = random.Random(4)

    def tokens(count: int) -> Tokens:
        return tuple(chance.choices(range(TOKENS), k=count))

    batch.join(tokens(9), tokens(1), tokens(33))
    for step in range(18):
        if step == 4:
            batch.take([0, 1, 2, 2, 0])
        if step == 8:
            batch.take([3, 1])
            batch.join(tokens(40), tokens(5))
        found = batch.step(tokens(len(batch.rows)), asks[step % len(asks)])
        check(found, batch.rows, asks[step % len(asks)])


@torch.no_grad()
def expected_attention(model: Transformer, row: Row) -> NDArray[np.float32]:
    """Of the last token, by PyTorch: the last layer's weights, the mean of its heads."""
    source, length, target = torch.tensor([row.source]), torch.tensor([len(row.source)]), torch.tensor([row.fed])
    encoded = model.encode(source, length)
    before = model.decode(encoded, length, target)[-2][-1:]
    layer = model.decoder[-1]
    assert isinstance(layer, DecoderLayer)
    cross = layer.cross
    heads = model.config.decoder_heads
    query = cross.query(cross.residual.enter(before)).view(heads, 1, -1)
    keys = model.cross_keys_values(encoded)[-2][0]
    weights = (query @ keys.transpose(1, 2) / query.shape[2] ** 0.5).softmax(2)
    mean: NDArray[np.float32] = weights.mean(0)[0].numpy()
    return mean


@pytest.mark.parametrize("on_device", [False, True], ids=["cpu", "cuda's, on the CPU provider"])
def test_all_that_can_be_asked_is_pytorchs(model: Model, on_device: bool) -> None:
    hold_to_pytorch(model, model.open(on_device), ATOL)


def hold_to_pytorch(model: Model, decoder: Decoder[Any], atol: float) -> None:
    """Asks a decoder of the model for everything."""
    asks = [ALL, Ask(best=2), Ask(attention=True), Ask(named=True), Ask(best=9, normaliser=True), Ask(logits=True)]

    def check(found: Found, rows: Sequence[Row], ask: Ask) -> None:
        for index, row in enumerate(rows):
            scores = log_probs(model.model, row.source, row.fed, model.graphs.shortlist)[-1].numpy()
            best = found.token_ids[index, : ask.best]
            np.testing.assert_allclose(found.log_probs[index, : ask.best], scores[best], atol=atol, rtol=0)
            if found.named is not None:
                [named] = found.named(np.array([index]), np.array([[*NAMED, -1]]))
                np.testing.assert_allclose(named, [*scores[list(NAMED)], -np.inf], atol=atol, rtol=0)
            allowed = np.isfinite(scores)
            if found.normaliser is not None and found.logits is not None:
                [normaliser], [logits] = found.normaliser(np.array([index])), found.logits(np.array([index]))
                np.testing.assert_allclose(logits[allowed] - normaliser, scores[allowed], atol=atol, rtol=0)
            if found.logits is not None:
                [logits] = found.logits(np.array([index]))
                assert (np.isfinite(logits) == allowed).all()
                normaliser = np.log(np.exp(logits[allowed].astype(np.float64)).sum())
                np.testing.assert_allclose(logits[allowed] - normaliser, scores[allowed], atol=atol, rtol=0)
            if found.attention is not None:
                looks, length = found.attention[index], len(row.source)
                np.testing.assert_allclose(looks[:length], expected_attention(model.model, row), atol=atol, rtol=0)
                assert (looks[length:] == 0).all() and len(looks) == max(len(row.source) for row in rows)
        given = [found.named, found.normaliser, found.logits, found.attention]
        assert [value is not None for value in given] == [ask.named, ask.normaliser, ask.logits, ask.attention]

    play(Batch(decoder, rows=5), check, asks)


def test_a_screened_output_layer_answers_the_same(tmp_path: Path) -> None:
    """Its graph of logits answers what the best tokens do not, and rows of which it is not certain."""
    transformer = random_model(SHAPES["attention"])
    model = Model(transformer, save(trace(transformer, output_layer="screened"), tmp_path))
    hold_to_pytorch(model, model.open(on_device=False), ATOL)


@pytest.mark.parametrize("on_device", [False, True], ids=["cpu", "cuda's, on the CPU provider"])
def test_the_best_tokens_have_the_same_bits_whatever_else_is_asked(model: Model, on_device: bool) -> None:
    def collect(asks: Sequence[Ask]) -> list[tuple[bytes, bytes]]:
        seen: list[tuple[bytes, bytes]] = []

        def keep(found: Found, rows: Sequence[Row], ask: Ask) -> None:
            seen.append((found.token_ids[:, :3].tobytes(), found.log_probs[:, :3].tobytes()))

        play(Batch(model.open(on_device), rows=5), keep, asks)
        return seen

    alone = collect([Ask(best=3)])
    assert collect([ALL]) == collect([ALL, Ask(best=3)]) == alone
    assert len(set(alone)) == 18


def test_steps_are_made_ahead_between_those_that_ask_for_more(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the device were an asynchronous one: greedy, with every third step asked for all."""
    expected, found = (greedy(model, ahead, monkeypatch) for ahead in (False, True))
    for (ids, logits), (other_ids, other_logits) in zip(found, expected, strict=True):
        assert ids == other_ids
        assert (logits is None) == (other_logits is None)
        if logits is not None and other_logits is not None:
            np.testing.assert_array_equal(logits, other_logits)


def greedy(
    model: Model, ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[list[int], NDArray[np.float32] | None]]:
    monkeypatch.setattr(HostTransfers, "asynchronous", ahead)
    batch = Batch(model.open(on_device=True), rows=2)
    batch.join((3, 1, 4), (1, 5, 9, 2, 6))
    tokens, seen = [1, 2], list[tuple[list[int], NDArray[np.float32] | None]]()
    for step in range(15):
        found = batch.step(tokens, ALL if step % 3 == 2 else Ask())
        tokens = found.token_ids[:, 0].tolist()
        seen.append((tokens, None if found.logits is None else found.logits(np.arange(2))))
    return seen


def test_half_precision_is_near(tmp_path: Path) -> None:
    transformer = random_model(SHAPES["attention"])
    halved = save(trace(variant(transformer, "fp16", "fused")), tmp_path)
    decoder = CudaDecoder(halved, LONGEST, LONGEST, CPU)

    def check(found: Found, rows: Sequence[Row], ask: Ask) -> None:
        assert found.named is not None and found.attention is not None
        named = found.named(np.arange(len(rows)), np.tile(NAMED, (len(rows), 1)))
        for index, row in enumerate(rows):
            scores = log_probs(transformer, row.source, row.fed)[-1].numpy()
            np.testing.assert_allclose(named[index], scores[list(NAMED)], atol=0.05, rtol=0)
            looks = found.attention[index, : len(row.source)]
            np.testing.assert_allclose(looks, expected_attention(transformer, row), atol=0.01, rtol=0)
            assert looks.sum() == pytest.approx(1, abs=1e-5)

    play(Batch(decoder, rows=5), check, [ALL])


@torch.no_grad()
def test_attention_is_that_of_transformers(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """The weights of the last layer that transformers' own Marian gives."""
    theirs = MarianMTModel.from_pretrained(tiny_checkpoint, attn_implementation="eager").eval()
    checkpoint = load_checkpoint(tiny_checkpoint)
    loadable = Loadable(save(trace(checkpoint.model), tmp_path), checkpoint.generation)
    batch = Batch(open_decoder(loadable, CPU), rows=1)
    source, target = (5, 9, 17, 33, 64, 0), (checkpoint.config.decoder_start_id, 8, 21, 34)
    batch.join(source)
    ids = torch.tensor([source]), torch.tensor([target])
    output = theirs(input_ids=ids[0], decoder_input_ids=ids[1], output_attentions=True)
    expected = output.cross_attentions[-1][0].mean(0).numpy()
    assert expected.std() > 1e-3, "too even to tell anything"
    for position, token in enumerate(target):
        found = batch.step([token], Ask(attention=True, logits=True))
        np.testing.assert_allclose(found.attention[0], expected[position], atol=1e-5, rtol=0)  # type: ignore[index]
        logits = output.logits[0, position].numpy()
        assert found.logits is not None
        np.testing.assert_allclose(found.logits(np.array([0]))[0], logits, atol=1e-4, rtol=0)


def test_attend_by_hand() -> None:
    """Two heads of one number, two rows with two sources and one."""
    keys = np.log(np.array([[[[1.0], [3.0]], [[1.0], [1.0]]], [[[1.0], [9.0]], [[1.0], [9.0]]]], np.float32))
    found = attend(np.ones((2, 2), np.float32), keys, np.array([1, 0], np.int32), scale=1.0)
    np.testing.assert_allclose(found, np.array([[0.375, 0.625], [1, 0]], np.float32), atol=1e-6)


@pytest.mark.parametrize("on_device", [False, True], ids=["cpu", "cuda's, on the CPU provider"])
@pytest.mark.parametrize(
    ("ask", "wish"),
    [
        (Ask(named=True), "log-probabilities of other tokens"),
        (Ask(normaliser=True), "log-probabilities of other tokens"),
        (Ask(logits=True), "log-probabilities of other tokens"),
        (Ask(attention=True), "attention"),
    ],
)
def test_graphs_of_format_1_do_not_offer_it(ask: Ask, wish: str, on_device: bool) -> None:
    graphs = Package.open(ROOT / "tests" / "data" / "package-format-1").graphs()
    decoder = CudaDecoder(graphs, 40, 40, CPU) if on_device else CpuDecoder(graphs, 40, 40)
    batch = Batch(decoder, rows=1)
    batch.join((3, 1, 4, 0))
    batch.step([7], Ask(best=2))
    with pytest.raises(NotOffered, match=f"{wish}.*export the checkpoint again"):
        batch.step([7], ask)
