"""A step for GPUs on the CPU provider, against the standard graph of the same fp16 package."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.packages.unverified import write_package
from engine.batch.placing import place
from engine.cuda.decoder import CudaDecoder
from engine.decoder import Ask
from engine.devices.session import CPU, DEVICE_KERNELS, DeviceError
from engine.devices.transfers import HostTransfers
from engine.loading import load
from engine.loading.load import Loadable, open_decoder
from kernels.device_library import device_library
from kernels.library import LibraryError
from models.decoding import Decoding
from models.package.folder import Package
from models.package.graph_files import GraphFiles
from tests.engine.test_batch_invariance import LONGEST, TEXTS, Translator, Visit
from tests.exported import ZOO

pytestmark = pytest.mark.timeout(600)

ROOM = 40
ATOL = 0.15
"""Of log-probabilities: the standard graph takes the best of logits that are rounded to fp16, of which this is few
steps."""
LOGITS_ATOL, MEAN_ATOL = 0.15, 0.03
"""Of logits, and of the mean of a row."""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """models/zoo/en-pt in fp16."""
    try:
        device_library()
    except LibraryError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("fp16") / "en-pt"
    write_package(ZOO, "en-pt", folder, "fp16", "fused")
    opened = Package.open(folder)
    if opened.manifest.graphs.device_step is None:
        pytest.skip("export makes no step for GPUs")
    return opened


def without_encoder(graphs: GraphFiles) -> GraphFiles:
    """As an older package has them: the standard encoder stands beside the step."""
    assert graphs.spec.device_step is not None
    step = graphs.spec.device_step.model_copy(update={"encoder": None, "operators": 1})
    return replace(graphs, spec=graphs.spec.model_copy(update={"device_step": step}))


class Pair:
    """Two caches to which the same is done: of the standard graph, and of the step for GPUs, beside one encoder."""

    def __init__(self, package: Package, rows: int) -> None:
        graphs = package.graphs()
        ours = without_encoder(graphs)
        self.decoders = CudaDecoder(graphs, ROOM, ROOM, CPU), CudaDecoder.open_step(ours, ROOM, ROOM, CPU)
        self.caches = [decoder.open_cache(rows) for decoder in self.decoders]
        self.tokens = graphs.spec.vocabulary.target_size
        self.best: list[int] = []
        """The standard graph's best token of each row."""

    @property
    def live(self) -> int:
        assert len({cache.live for cache in self.caches}) == 1
        return self.caches[0].live

    def join(self, sources: Sequence[Sequence[int]]) -> None:
        for decoder, cache in zip(self.decoders, self.caches, strict=True):
            for source in decoder.encode(sources):
                cache.join(source)

    def take(self, parents: Sequence[int]) -> list[int]:
        taken = dict(zip(place(parents), parents, strict=True))
        order = [taken[row] for row in range(len(parents))]
        return [cache.take(order) for cache in self.caches]

    def step(self, tokens: Sequence[int], ask: Ask) -> None:
        for cache in self.caches:
            cache.begin_step(tokens, ask)
        expected, found = (cache.end_step() for cache in self.caches)
        self.best = expected.token_ids[:, 0].tolist()
        # Whichever comes first of two that are near.
        np.testing.assert_allclose(found.log_probs, expected.log_probs, atol=ATOL, rtol=0)
        if ask.logits:
            assert found.logits is not None and expected.logits is not None
            rows = np.arange(len(tokens))
            logits = expected.logits(rows)
            errors = np.abs(found.logits(rows) - logits)
            assert errors.max() < LOGITS_ATOL
            assert errors.mean(1).max() < MEAN_ATOL
            chosen = np.take_along_axis(logits, found.token_ids, 1)
            assert (chosen > np.sort(logits)[:, -found.token_ids.shape[1], None] - LOGITS_ATOL).all()
        if ask.attention:
            assert found.attention is not None and expected.attention is not None
            np.testing.assert_allclose(found.attention, expected.attention, atol=0.02, rtol=0)

    @property
    def furthest(self) -> int:
        return int(self.caches[0]._rows.positions[: self.live].max(initial=0))


@pytest.mark.parametrize("ahead", [False, True], ids=["step by step", "ahead"])
@pytest.mark.parametrize(("seed", "rows"), [(1, 7), (2, 8), (3, 1), (4, 13)])
def test_every_step_gives_what_the_standard_graph_gives(
    package: Package, monkeypatch: pytest.MonkeyPatch, seed: int, rows: int, ahead: bool
) -> None:
    monkeypatch.setattr(HostTransfers, "asynchronous", ahead)
    pair, chance = Pair(package, rows), random.Random(seed)
    settled = 0
    for _ in range(80):
        if pair.furthest == ROOM:
            pair.take([])
        live = pair.live
        if live and chance.random() < 0.4:
            staying = chance.sample(range(live), k=chance.randint(live // 2, live))
            copies = chance.choices(staying, k=chance.randint(0, rows - len(staying))) if staying else []
            _, copied = pair.take(chance.sample(staying + copies, k=len(staying + copies)))
            settled += copied > 0
            pair.best = chance.choices(range(pair.tokens), k=pair.live)
        room = rows - pair.live
        coming = chance.randint(0, room) if chance.random() < 0.3 or room == rows else 0
        lengths = chance.choices((1, 2, 9, 16, 17, 33, ROOM), k=max(coming, room == rows))
        pair.join([chance.choices(range(pair.tokens), k=length) for length in lengths])
        random_tokens = chance.choices(range(pair.tokens), k=pair.live)
        tokens = (pair.best + random_tokens[len(pair.best) :])[: pair.live] if chance.random() < 0.8 else random_tokens
        more = chance.random() < 0.3
        pair.step(tokens, Ask(chance.choice((1, 2, 9, 64)), logits=more, attention=more))
    assert rows < 8 or settled


def test_greedy_rows_are_foreseen_as_they_are_with_the_standard_graph(
    package: Package, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HostTransfers, "asynchronous", True)
    pair = Pair(package, rows=4)
    pair.join([(3, 1, 4), (1, 5, 9, 2, 6), (5,)])
    pair.step([1, 2, 3], Ask())
    for _ in range(8):
        pair.step(pair.best, Ask())
    pair.take([0, 1])
    for _ in range(8):
        pair.step(pair.best[:2], Ask())
    assert asked == [3, 3, 2, 2]


class WithKernels(Translator):
    """Runs visits on the device decoder, with our own operators or without."""

    def __init__(self, package: Package, kernels: Any) -> None:
        super().__init__(package, kernels)
        assert self._decoder.device.kernels == (DEVICE_KERNELS if kernels == "required" else "")


def test_whole_requests_get_the_standard_graphs_tokens(package: Package) -> None:
    """Greedy ones and beams, who come and go."""
    standard, ours = WithKernels(package, "off"), WithKernels(package, "required")
    visits = [
        Visit(pause, text, Decoding(num_beams, 1, LONGEST, 1.0, False), patience)
        for pause, text, num_beams, patience in zip(
            (0, 0, 1, 3, 0, 7, 2, 0, 5, 1), range(10), (1, 4) * 5, (None, None, None, None, 9, 5) * 2, strict=False
        )
        if text < len(TEXTS)
    ]
    expected, found = standard.together(visits), ours.together(visits)
    assert sum(answer is not None for answer in expected) >= 6
    for one, other in zip(expected, found, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert [hypothesis.token_ids for hypothesis in other] == [hypothesis.token_ids for hypothesis in one]
            scores = [hypothesis.score for hypothesis in one]
            assert [hypothesis.score for hypothesis in other] == pytest.approx(scores, abs=ATOL)


def test_on_a_cpu_the_standard_graph_runs_unless_the_step_is_required(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = open_decoder(Loadable.of(package), CPU, ROOM, ROOM)
    assert decoder.device.kernels == ""
    decoder.close()
    broken = tmp_path / "libdragoman_device.so"
    broken.write_bytes(b"no library")
    monkeypatch.setattr("engine.cuda.decoder.device_library", lambda gpu: broken)
    with pytest.raises(DeviceError, match="kernels are required: the step for GPUs does not load"):
        load.open_decoder(Loadable.of(package), CPU, ROOM, ROOM, "required")
