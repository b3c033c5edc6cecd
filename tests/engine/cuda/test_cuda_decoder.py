"""engine.cuda.decoder on the CPU provider: everything but CUDA itself, against engine.cpu.decoder.

Real graphs: random joins, steps and reorderings of both caches side by side, with random weights; and whole requests
that come and go in a real engine, with models/zoo/en-pt.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from engine.batch.placing import place
from engine.batch.running_batch import RunningBatch
from engine.cpu.cache import CpuCache
from engine.cpu.decoder import CpuDecoder
from engine.cuda import runtime
from engine.cuda.cache import CudaCache
from engine.cuda.decoder import CudaDecoder
from engine.cuda.stepping.buckets import row_buckets
from engine.decoder import Ask
from engine.devices.session import CPU, DeviceError
from engine.devices.transfers import HostTransfers
from engine.errors import OutOfMemory
from engine.observer import Unobserved
from engine.request import Event, Failed, Finished, Probe, Probed, Translate
from export.tracing.trace import trace
from export.tracing.variant import variant
from export.weights.save import save
from models.config import ModelConfig
from models.decoding import Decoding
from models.package.folder import Package
from models.package.graph_files import GraphFiles
from tests.checkpoints import ZOO
from tests.engine.cpu.test_cpu_decoder import CONFIGS, LONGEST, decoded_bytes, position_bytes
from tests.engine.test_batch_invariance import LONGEST as LONGEST_TEXT
from tests.engine.test_batch_invariance import VISITS, Translator, Visit
from tests.engine.traced import shared_model, traced
from tests.fakes import rules_of
from tests.models.test_transformer import random_model

pytestmark = pytest.mark.timeout(600)

Tokens = tuple[int, ...]
ATOL = 1e-5
"""Sources are padded here, and attention may add up in another order."""


@dataclass
class Twins:
    """One model in both decoders."""

    graphs: GraphFiles
    config: ModelConfig
    expected: CpuDecoder
    device: CudaDecoder

    def random_tokens(self, chance: random.Random, length: int) -> Tokens:
        return tuple(chance.choices(range(self.config.target_vocab_size), k=length))


@pytest.fixture(scope="session", params=CONFIGS)
def twins(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Twins:
    model, folder = shared_model(CONFIGS[request.param]), tmp_path_factory.mktemp("graphs")
    return open_twins(save(traced(model), folder), model.config)


def open_twins(graphs: GraphFiles, config: ModelConfig) -> Twins:
    room = LONGEST, LONGEST
    return Twins(graphs, config, CpuDecoder(graphs, *room), CudaDecoder(graphs, *room, CPU))


class Batches:
    """Two caches to which the same is done."""

    def __init__(self, twins: Twins, rows: int, atol: float = ATOL) -> None:
        """`atol`: of log-probabilities."""
        self._twins, self._atol = twins, atol
        self.expected: CpuCache = twins.expected.open_cache(rows)
        self.device: CudaCache = twins.device.open_cache(rows)
        self.steps = 0

    def join(self, sources: Sequence[Tokens]) -> None:
        encoded = self._twins.expected.encode(sources), self._twins.device.encode(sources)
        for expected, found in zip(*encoded, strict=True):
            assert self.device.join(found) == self.expected.join(expected)

    def step(self, tokens: Sequence[int], k: int) -> None:
        for cache in (self.expected, self.device):
            cache.begin_step(tokens, Ask(k))
        expected, found = self.expected.end_step(), self.device.end_step()
        self.found = found
        """What the last step found."""
        np.testing.assert_array_equal(found.token_ids, expected.token_ids)
        np.testing.assert_allclose(found.log_probs, expected.log_probs, atol=self._atol, rtol=0)
        self.steps += 1

    def take(self, parents: Sequence[int]) -> None:
        """Lets children continue these rows, wherever `place` puts them."""
        taken = dict(zip(place(parents), parents, strict=True))
        order = [taken[row] for row in range(len(parents))]
        expected, found = (cache.take(order) for cache in (self.expected, self.device))
        assert (found > 0) == (expected > 0)  # how much is another question: a device copies blocks of positions
        assert self.device.live == self.expected.live == len(parents)


def play(twins: Twins, seed: int, rows: int, steps: int = 90) -> Batches:
    """Rows that join, leave, are widened to beams and reordered at random, each at a position of its own."""
    batches, chance = Batches(twins, rows), random.Random(seed)
    for _ in range(steps):
        live = batches.device.live
        if live and chance.random() < 0.3:
            staying = chance.sample(range(live), k=chance.randint(live // 2, live))
            copies = chance.choices(staying, k=chance.randint(0, rows - len(staying))) if staying else []
            batches.take(chance.sample(staying + copies, k=len(staying + copies)))
        room = rows - batches.device.live
        coming = chance.randint(0, room) if chance.random() < 0.2 or room == rows else 0
        lengths = chance.choices((1, 2, 9, 16, 17, 33, 70, LONGEST), k=max(coming, room == rows))
        batches.join([twins.random_tokens(chance, length) for length in lengths])
        batches.step(twins.random_tokens(chance, batches.device.live), k=chance.choice((1, 2, 9, 100)))
    return batches


@pytest.mark.parametrize(("seed", "rows"), [(1, 7), (2, 8), (3, 1), (4, 13)])
def test_every_step_gives_what_the_other_decoder_gives(twins: Twins, seed: int, rows: int) -> None:
    assert play(twins, seed, rows).steps == 90


def test_rows_are_moved_in_several_runs_where_memory_is_short(twins: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "MOVED_BYTES", 40_000)  # one or two rows at a time
    play(twins, seed=5, rows=9, steps=40)


def test_a_full_outbox_is_emptied(twins: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "OUTBOX_BYTES", 16 * 144 * 8)  # one encoder run, or some moves
    play(open_twins(twins.graphs, twins.config), seed=6, rows=12, steps=40)


def test_two_caches_of_a_decoder_do_not_see_each_other(twins: Twins) -> None:
    one, other = Batches(twins, rows=2), Batches(twins, rows=3)
    one.join([(3, 1, 4)])
    other.join([(7, 7), (1, 5, 9, 2)])
    for token in (9, 2, 6):
        one.step([token], k=5)
        other.step([token, 8], k=2)


@pytest.mark.parametrize("length", [1, 15, 16, 17, LONGEST])
def test_hidden_states_are_the_same(twins: Twins, length: int) -> None:
    chance = random.Random(length)
    sources = [twins.random_tokens(chance, length) for length in (length, 3, 1, 16)]
    for expected, found in zip(twins.expected.encode(sources), twins.device.encode(sources), strict=True):
        assert found.length == expected.length
        np.testing.assert_allclose(found.hidden(), expected.hidden(), atol=ATOL, rtol=0)


def test_targets_end_where_the_room_does(twins: Twins) -> None:
    cache = twins.device.open_cache(rows=1)
    cache.join(*twins.device.encode([(3, 1, 4)]))
    for _ in range(LONGEST):
        cache.begin_step([1], Ask())
        cache.end_step()
    with pytest.raises(ValueError, match=f"a row needs {LONGEST + 1} positions; the cache was opened for {LONGEST}"):
        cache.begin_step([1], Ask())


def test_sources_end_where_the_room_does(twins: Twins) -> None:
    with pytest.raises(ValueError, match=f"a source has {LONGEST + 1} tokens; the decoder was opened for {LONGEST}"):
        twins.device.encode([(1,) * (LONGEST + 1)])


@pytest.mark.parametrize(
    ("rows", "buckets"), [(1, [1]), (2, [1, 2]), (5, [1, 2, 4, 5]), (64, [1, 2, 4, 8, 16, 32, 64])]
)
def test_buckets(rows: int, buckets: list[int]) -> None:
    assert row_buckets(rows) == buckets


def test_what_was_there_before_does_not_matter(twins: Twins) -> None:
    """Memory of a cache that is gone is not zero."""
    for _ in range(3):
        play(twins, seed=7, rows=6, steps=10)


@pytest.mark.parametrize("twins", ["post-norm, relu"], indirect=True)
def test_fp16_is_near_fp32(twins: Twins, tmp_path: Path) -> None:
    graphs = save(trace(variant(random_model(twins.config), "fp16", "fused")), tmp_path)
    device = CudaDecoder(graphs, LONGEST, LONGEST, CPU)
    batches = Batches(Twins(graphs, twins.config, twins.expected, device), rows=5, atol=0.05)
    chance = random.Random(8)
    batches.join([twins.random_tokens(chance, length) for length in (3, 40, 17)])
    for _ in range(20):
        batches.step(twins.random_tokens(chance, 3), k=1)
    batches.take([0, 1, 2, 0, 1])
    for _ in range(20):
        batches.step(twins.random_tokens(chance, 5), k=1)
    [source] = device.encode([(3, 1, 4)])
    [expected] = twins.expected.encode([(3, 1, 4)])
    np.testing.assert_allclose(source.hidden(), expected.hidden(), atol=0.02, rtol=0)


@pytest.mark.parametrize("twins", ["post-norm, relu"], indirect=True)
def test_plain_attention_gives_the_same(twins: Twins, tmp_path: Path) -> None:
    graphs = save(trace(random_model(twins.config), "plain"), tmp_path)
    play(Twins(graphs, twins.config, twins.expected, open_twins(graphs, twins.config).device), seed=9, rows=6)


def test_bytes_that_are_copied_are_told(twins: Twins) -> None:
    batches, config = Batches(twins, rows=4), twins.config
    decoded = decoded_bytes(config, 32)  # a block of places
    batches.join([(3, 1, 4), (1, 5, 9, 2)])
    for _ in range(3):
        batches.step([4, 4], k=1)
    source = (32 + 1) * position_bytes(config)  # and its last token
    assert batches.device.take([0, 1, 1]) == decoded + source
    assert batches.device.take([0, 1]) == 0
    assert batches.device.take([0, 1, 1]) == decoded


def test_tokens_that_fill_up_a_batch_are_shared_out_to_those_that_are_there(twins: Twins) -> None:
    chance = random.Random(0)
    sources = [twins.random_tokens(chance, length) for length in (3, 16, 9, 17)]
    *alike, longer = (source.computed_tokens for source in twins.device.encode(sources))
    assert alike == [4 * 16 / 3] * 3  # four sentences of 16 tokens, one of them nobody's
    assert longer == 32
    assert [source.computed_tokens for source in twins.expected.encode(sources)] == list(map(len, sources))


# Memory


class Full:
    """A session whose device has no memory for some runs. Injected, because a CPU has more than one asks for."""

    def __init__(self, session: Any, runs: int) -> None:
        self._session, self.runs = session, runs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def run_with_iobinding(self, *arguments: Any) -> None:
        if self.runs:
            self.runs -= 1
            raise RuntimeError(
                "BFCArena::AllocateRawInternal Available memory of 0 is smaller than requested bytes of 1"
            )
        self._session.run_with_iobinding(*arguments)


def check_that_a_text_without_memory_is_refused(decoder: CudaDecoder, config: ModelConfig) -> None:
    """And that the batch goes on."""
    events: dict[str, list[Event]] = {"running": [], "refused": [], "later": []}

    def request(name: str) -> Translate:
        decoding = Decoding(2, 1, 20, 1.0, False)
        rules = rules_of(config.end_id, start_id=config.decoder_start_id)
        return Translate((3, 1, 4), events[name].append, decoding=decoding, rules=rules)

    engine = RunningBatch(decoder, 6, Unobserved(), worker=0)
    engine.admit([request("running")])
    engine.step()
    encoder: Any = decoder._encoder
    encoder._session = full = Full(encoder._session, runs=1)
    engine.admit([request("refused")])
    assert full.runs == 0
    engine.admit([request("later")])
    while not engine.idle:
        engine.step()
    [refused], [running], [later] = events["refused"], events["running"], events["later"]
    assert isinstance(refused, Failed) and isinstance(refused.error, OutOfMemory)
    assert isinstance(running, Finished) and isinstance(later, Finished)
    assert running.hypotheses == later.hypotheses
    assert engine.free_rows == 6


def test_a_text_without_memory_is_refused_and_the_batch_goes_on(twins: Twins) -> None:
    check_that_a_text_without_memory_is_refused(open_twins(twins.graphs, twins.config).device, twins.config)


def test_other_errors_of_the_encoder_are_not_taken_for_that(twins: Twins) -> None:
    decoder = open_twins(twins.graphs, twins.config).device
    with pytest.raises(RuntimeError, match="indices element out of data bounds"):
        decoder.encode([(10_000,)])


def test_a_cache_without_memory_is_told_with_a_way_out(twins: Twins) -> None:
    with pytest.raises(DeviceError, match=r"no memory for 1000000000 rows of 130 \+ 130 tokens: lower --max-rows"):
        twins.device.open_cache(rows=10**9)


@pytest.mark.parametrize("twins", ["post-norm, relu"], indirect=True)
def test_a_graph_that_cannot_be_captured_is_launched_kernel_by_kernel(
    twins: Twins, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The refusal is injected: it is CUDA's."""
    open_session = runtime.DeviceRuntime.open_session

    def refuse(self: runtime.DeviceRuntime, graph: Path, capture: bool = False, library: Path | None = None) -> Any:
        if capture:
            raise RuntimeError("This session cannot use the graph capture feature as requested by the user")
        return open_session(self, graph, library=library)

    monkeypatch.setattr(runtime.DeviceRuntime, "open_session", refuse)
    decoder = CudaDecoder(twins.graphs, LONGEST, LONGEST, replace(CPU, cuda_graphs=True))
    assert not decoder.device.cuda_graphs
    assert "decoder steps are launched kernel by kernel" in caplog.text
    play(Twins(twins.graphs, twins.config, twins.expected, decoder), seed=10, rows=3, steps=5)


def test_a_probe_leaves_the_engine_as_it_was(twins: Twins) -> None:
    events: list[Event] = []
    engine = RunningBatch(twins.device, 4, Unobserved(), worker=0)
    engine.admit([Probe((3, 1), events.append)])
    assert events == [Probed()]
    assert (engine.idle, engine.free_rows) == (True, 4)


# Whole requests


class OnDevice(Translator):
    """Runs visits on the device decoder."""

    def __init__(self, package: Package) -> None:
        super().__init__(package)
        self._decoder = CudaDecoder(package.graphs(), LONGEST_TEXT, LONGEST_TEXT, CPU)


@pytest.fixture(scope="module")
def full() -> Package:
    """A device has no screened output layer."""
    return Package.open(ZOO)


@pytest.fixture(scope="module")
def onnx(full: Package) -> Translator:
    return Translator(full, kernels="off")


@pytest.fixture(scope="module", params=[False, True], ids=["step by step", "ahead"])
def on_device(full: Package, request: pytest.FixtureRequest) -> Iterator[Translator]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HostTransfers, "asynchronous", request.param)
        yield OnDevice(full)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(visits=VISITS)
def test_every_answer_is_the_other_decoders(onnx: Translator, on_device: Translator, visits: list[Visit]) -> None:
    for visit, answer in zip(visits, on_device.together(visits), strict=True):
        if answer is None:
            assert visit.patience is not None, "a request that stayed has no answer"
            continue
        expected = onnx.alone(visit.text, visit.decoding)
        assert [hypothesis.token_ids for hypothesis in answer] == [hypothesis.token_ids for hypothesis in expected]
        scores = [hypothesis.score for hypothesis in expected]
        assert [hypothesis.score for hypothesis in answer] == pytest.approx(scores, abs=ATOL, rel=0)
