"""engine.cpu.decoder on traced models with random weights: its rows against PyTorch, and against themselves alone."""

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from engine.batch.placing import place
from engine.cpu.cache import CpuCache
from engine.cpu.decoder import RUN_TOKENS, CpuDecoder
from engine.cpu.source import CpuSource
from engine.decoder import Ask, Cache, Found
from export.weights.save import save
from models.config import ModelConfig
from models.package.signature import MAX_CANDIDATES
from models.transformer import Transformer
from tests.engine.traced import shared_model, traced
from tests.models.test_transformer import config

FP32_BYTES = 4
LONGEST = 130
"""Positions of a row. The memory for so many is four times that for less than 32, so that it shrinks again."""
CONFIGS = {
    "post-norm, relu": config(max_positions=LONGEST),
    "pre-norm, swish, 37 tokens": config(
        norm="pre",
        activation="swish",
        positions="learned",
        tie_output=False,
        decoder_layers=1,
        decoder_ffn=51,
        source_vocab_size=37,
        target_vocab_size=37,
        pad_id=36,
        decoder_start_id=36,
        max_positions=LONGEST,
    ),
    "recurrent": config(decoder_cell="ssru", max_positions=LONGEST),
}
ATOL = 2e-5

Tokens = tuple[int, ...]


@dataclass
class Served:
    """A model, and the same exported and loaded."""

    model: Transformer
    decoder: Any
    """The standard graphs', or the native ones'."""

    def random_tokens(self, chance: random.Random, length: int) -> Tokens:
        return tuple(chance.choices(range(self.model.config.target_vocab_size), k=length))

    def step_alone(self, source: Tokens, target: Tokens, k: int) -> list[Found]:
        """The candidates after each target token, in a batch of one."""
        batch = Batch(self, rows=1)
        batch.join(source)
        return [batch.step([token], k) for token in target]

    @torch.no_grad()
    def log_probs(self, source: Tokens, target: Tokens) -> NDArray[np.float32]:
        """PyTorch's, after each target token [target, vocabulary]."""
        logits = self.model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([target]))
        scores: NDArray[np.float32] = logits[0].log_softmax(dim=1).numpy()
        return scores


@pytest.fixture(scope="session", params=CONFIGS)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Served:
    model = shared_model(CONFIGS[request.param])
    folder: Path = tmp_path_factory.mktemp("graphs")
    return Served(model, CpuDecoder(save(traced(model), folder), LONGEST, LONGEST))


@dataclass
class Row:
    """A hypothesis that was in the batch: its source, what it was fed, and what it got after each token."""

    source: Tokens
    fed: Tokens = ()
    found: list[Found] = field(default_factory=list)

    def fork(self) -> "Row":
        return Row(self.source, self.fed, list(self.found))


class Batch:
    """A cache, and the whole history of every row."""

    def __init__(self, served: Served, rows: int) -> None:
        self._decoder = served.decoder
        self.cache: Cache[Any] = served.decoder.open_cache(rows)
        self.rows: list[Row] = []
        self.left: list[Row] = []
        self.sizes: list[int] = []
        self.ragged_steps = 0

    def join(self, source: Tokens) -> None:
        assert self.cache.join(*self._decoder.encode([source])) == len(self.rows)
        self.rows.append(Row(source))

    def step(self, tokens: Sequence[int], k: int) -> Found:
        """Returns a copy of the answer."""
        self.cache.begin_step(tokens, Ask(k))
        answer = self.cache.end_step()
        answer = Found(answer.token_ids.copy(), answer.log_probs.copy())
        for index, row in enumerate(self.rows):
            row.fed = (*row.fed, tokens[index])
            row.found.append(Found(answer.token_ids[index], answer.log_probs[index]))
        self.sizes.append(len(self.rows))
        self.ragged_steps += len({len(row.fed) for row in self.rows}) > 1
        return answer

    def take(self, parents: Sequence[int]) -> None:
        """Lets children continue these rows, wherever `place` puts them."""
        taken = dict(zip(place(parents), parents, strict=True))
        order = [taken[row] for row in range(len(parents))]
        self.cache.take(order)
        self.left += [row for index, row in enumerate(self.rows) if index not in order]
        self.rows = [self.rows[parent].fork() for parent in order]
        assert self.cache.live == len(self.rows)

    @property
    def histories(self) -> list[Row]:
        return [row for row in self.left + self.rows if row.fed]


def play(served: Served, seed: int) -> Batch:
    """Rows that join, leave, are widened to beams and reordered at random, each at a position of its own."""
    rows = 7
    batch, chance = Batch(served, rows), random.Random(seed)
    for _ in range(120):
        if batch.rows and chance.random() < 0.2:
            staying = chance.sample(range(len(batch.rows)), k=chance.randint(len(batch.rows) // 2, len(batch.rows)))
            copies = chance.choices(staying, k=chance.randint(0, min(2, rows - len(staying)))) if staying else []
            batch.take(chance.sample(staying + copies, k=len(staying + copies)))
        while not batch.rows or (len(batch.rows) < rows and chance.random() < 0.15):
            batch.join(served.random_tokens(chance, chance.choice((1, 2, 9, 31, 33, 70, LONGEST))))
        batch.step(served.random_tokens(chance, len(batch.rows)), k=chance.choice((1, 2, 9)))
    return batch


def play_long(served: Served) -> Batch:
    """Rows that stay as long as they can, and then short ones alone."""
    batch, chance = Batch(served, rows=6), random.Random(0)
    for step in range(LONGEST):
        if step in (0, 1, 13, 32, 70, LONGEST - 3):
            batch.join(served.random_tokens(chance, LONGEST - step))
        batch.step(served.random_tokens(chance, len(batch.rows)), k=9)
    batch.take([len(batch.rows) - 1])
    batch.join(served.random_tokens(chance, 5))
    for _ in range(30):
        batch.step(served.random_tokens(chance, 2), k=9)
    return batch


@pytest.fixture(scope="module", params=["long", 1, 2])
def batch(served: Served, request: pytest.FixtureRequest) -> Batch:
    return play_long(served) if request.param == "long" else play(served, request.param)


def test_rows_get_what_pytorch_gives(served: Served, batch: Batch) -> None:
    for row in batch.histories:
        for expected, found in zip(served.log_probs(row.source, row.fed), row.found, strict=True):
            k = len(found.token_ids)
            np.testing.assert_allclose(found.log_probs, np.sort(expected)[::-1][:k], atol=ATOL, rtol=0)
            np.testing.assert_allclose(found.log_probs, expected[found.token_ids], atol=ATOL, rtol=0)
            assert len(set(found.token_ids.tolist())) == k


def test_rows_get_what_they_get_alone_to_the_last_bit(served: Served, batch: Batch) -> None:
    for row in batch.histories:
        for alone, found in zip(served.step_alone(row.source, row.fed, k=9), row.found, strict=True):
            k = len(found.token_ids)
            assert alone.token_ids[0, :k].tolist() == found.token_ids.tolist()
            assert alone.log_probs[0, :k].tobytes() == found.log_probs.tobytes()


def test_batches_are_varied(batch: Batch) -> None:
    """So that the tests above show something."""
    assert len(set(batch.sizes)) >= 5
    assert len({row.source for row in batch.histories}) >= 5
    assert max(len(row.fed) for row in batch.histories) > 32
    assert batch.ragged_steps > 80


def test_beams_find_their_source_after_the_memory_changed(served: Served) -> None:
    """What a row held that is not live does not survive the change, and must be copied again."""
    chance = random.Random(0)
    short, long = served.random_tokens(chance, 5), served.random_tokens(chance, LONGEST)
    batch = Batch(served, rows=3)
    batch.join(short)
    batch.take([0, 0, 0])
    batch.take([0])
    batch.join(long)
    batch.take([0, 1, 0])
    found = batch.step([4, 4, 4], k=5)
    assert found.log_probs[2].tobytes() == found.log_probs[0].tobytes()
    assert found.log_probs[2].tobytes() != found.log_probs[1].tobytes()


def position_bytes(config: ModelConfig) -> int:
    """Of the keys and values of a source or target token."""
    return 2 * config.decoder_layers * config.decoder_heads * config.decoder_head_dim * FP32_BYTES


def decoded_bytes(config: ModelConfig, positions: int) -> int:
    """Of what a hypothesis has decoded: so many keys and values, or a state."""
    if config.decoder_cell == "ssru":
        return config.decoder_layers * config.width * FP32_BYTES
    return positions * position_bytes(config)


def test_bytes_that_are_copied_are_told(served: Served) -> None:
    """Of beams of one sentence only what they have decoded, of others their source too."""
    batch, config = Batch(served, rows=4), served.model.config
    decoded = decoded_bytes(config, 3)
    batch.join((3, 1, 4))
    batch.join((1, 5, 9, 2))
    for _ in range(3):
        batch.step([4, 4], k=1)
    assert batch.cache.take([0, 1]) == 0
    assert batch.cache.take([0, 1, 1]) == decoded + 4 * position_bytes(config)
    assert batch.cache.take([0, 1]) == 0
    assert batch.cache.take([0, 1, 1]) == decoded


def test_rows_change_from_sentence_to_sentence(served: Served) -> None:
    """In rows that neither began in."""
    batch = Batch(served, rows=4)
    batch.join((3, 1, 4))
    batch.join((1, 5, 9, 2))
    batch.take([0, 1, 0, 1])
    batch.take([0, 1, 3, 3])
    first, *others = (row.tobytes() for row in batch.step([4] * 4, k=5).log_probs)
    assert first not in others
    assert len(set(others)) == 1


def test_any_number_of_rows_gives_the_same(served: Served) -> None:
    source, target = (3, 1, 4, 1, 5), (9, 2, 6, 5)
    expected = served.step_alone(source, target, k=5)
    for rows in range(2, 40):
        batch = Batch(served, rows)
        for _ in range(rows):
            batch.join(source)
        for token, alone in zip(target, expected, strict=True):
            found = batch.step([token] * rows, k=5)
            assert (found.token_ids == alone.token_ids).all()
            assert found.log_probs.tobytes() == alone.log_probs.tobytes() * rows


def test_batches_do_not_see_each_other(served: Served) -> None:
    source, target = (3, 1, 4, 1, 5), (9, 2, 6, 5)
    expected = served.step_alone(source, target, k=5)
    one, other = Batch(served, rows=2), Batch(served, rows=2)
    one.join(source)
    other.join((7, 7))
    for token, alone in zip(target, expected, strict=True):
        found = one.step([token], k=5)
        other.step([8], k=5)
        assert found.log_probs.tobytes() == alone.log_probs.tobytes()


def test_no_more_candidates_than_there_are(served: Served) -> None:
    vocabulary = served.model.config.target_vocab_size
    most = min(vocabulary, MAX_CANDIDATES)
    sources: tuple[Tokens, Tokens] = (3, 1, 4), (1,)
    batch = Batch(served, rows=2)
    for source in sources:
        batch.join(source)
    found = batch.step([2, 7], k=10_000)
    assert found.token_ids.shape == found.log_probs.shape == (2, most)
    for row, (source, token) in enumerate(zip(sources, (2, 7), strict=True)):
        [expected] = served.log_probs(source, (token,))
        np.testing.assert_allclose(found.log_probs[row], np.sort(expected)[::-1][:most], atol=ATOL, rtol=0)
        assert len(set(found.token_ids[row].tolist()) & set(range(vocabulary))) == most


@pytest.mark.parametrize("length", [1, 2, 37, LONGEST])
def test_an_encoded_source_is_pytorchs(served: Served, length: int) -> None:
    source = served.random_tokens(random.Random(length), length)
    [encoded] = served.decoder.encode([source])
    with torch.no_grad():
        hidden = served.model.encode(torch.tensor([source]), torch.tensor([length]))
        cross = served.model.cross_keys_values(hidden)
    assert encoded.length == length
    np.testing.assert_allclose(encoded.hidden(), hidden[0].numpy(), atol=ATOL, rtol=0)
    for found, expected in zip(encoded.encoded.values(), cross, strict=True):
        np.testing.assert_allclose(found, expected.numpy(), atol=ATOL, rtol=0)


def test_encoded_sources_do_not_depend_on_what_is_encoded_with_them(served: Served) -> None:
    chance = random.Random(3)
    sources = [served.random_tokens(chance, length) for length in (9, 1, 9, 37, 1, 9, 9, 9, 130)]
    for source, encoded in zip(sources, served.decoder.encode(sources), strict=True):
        [alone] = served.decoder.encode([source])
        assert encoded.length == len(source)
        assert encoded.hidden().tobytes() == alone.hidden().tobytes()
        assert {name: tensor.tobytes() for name, tensor in encoded.encoded.items()} == {
            name: tensor.tobytes() for name, tensor in alone.encoded.items()
        }


def test_where_a_run_of_several_changes_bits_each_source_is_encoded_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of what the cache starts with alone, and by as little as there is."""
    encode, runs = CpuDecoder._encode, list[int]()

    def noisy(decoder: CpuDecoder, sources: Sequence[Tokens], named: Sequence[Tokens]) -> Iterator[CpuSource]:
        runs.append(len(sources))
        for found in encode(decoder, sources, named):
            changed = {name: np.nextafter(tensor, np.float32(9)) for name, tensor in found.encoded.items()}
            yield CpuSource(found.hidden()[None], changed if len(sources) > 1 else found.encoded)

    monkeypatch.setattr(CpuDecoder, "_encode", noisy)
    files = save(traced(shared_model(CONFIGS["post-norm, relu"])), tmp_path)
    with closing(CpuDecoder(files, LONGEST, LONGEST)) as decoder:
        assert "each is encoded alone" in caplog.text and max(runs) > 1
        runs.clear()
        assert len(decoder.encode([(5, 6, 7)] * 3)) == 3 and runs == [1, 1, 1]


def test_a_run_of_the_encoder_has_so_many_tokens_and_no_more(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    session, sizes = served.decoder._encoder, list[int]()

    class Counted:
        def run(self, names: Sequence[str], feeds: dict[str, NDArray[np.int64]]) -> Any:
            sizes.append(feeds["ids"].size)
            return session.run(names, feeds)

    monkeypatch.setattr(served.decoder, "_encoder", Counted())
    encoded = served.decoder.encode([(7,) * 100] * 12 + [(5,) * 3] * 2)
    assert sizes == [6, 500, 500, 200]
    assert max(sizes) <= RUN_TOKENS and len({source.hidden().tobytes() for source in encoded[:12]}) == 1


def test_targets_end_where_the_room_does(served: Served) -> None:
    batch = Batch(served, rows=1)
    batch.join((3, 1, 4))
    for _ in range(LONGEST):
        batch.step([1], k=1)
    with pytest.raises(ValueError, match=f"a row needs {LONGEST + 1} positions; the cache was opened for {LONGEST}"):
        batch.step([1], k=1)


def test_sources_end_where_the_room_does(served: Served) -> None:
    decoder = served.decoder
    [encoded] = decoder.encode([(1,) * 9])
    cache = CpuCache(decoder._decoder, decoder.spec, 1, source_capacity=8, target_capacity=8)
    with pytest.raises(ValueError, match="a row needs 9 positions; the cache was opened for 8"):
        cache.join(encoded)
