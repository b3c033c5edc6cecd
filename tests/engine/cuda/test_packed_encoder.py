"""The encoder for GPUs on the CPU provider, against PyTorch: sources of any lengths, packed in any way."""

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from engine.cuda import runtime
from engine.cuda.cache import CudaCache
from engine.cuda.decoder import CudaDecoder
from engine.cuda.encoding import packed_encoder
from engine.cuda.encoding.packed_encoder import PackedEncoder
from engine.cuda.encoding.packed_feed import feed, token_buckets
from engine.cuda.encoding.source_keeper import SourceKeeper
from engine.decoder import Ask
from engine.devices import sizing
from engine.devices.cudart import CudaRuntime
from engine.devices.session import CPU, DeviceError, open_session
from engine.devices.sizing import Load, packed_tokens
from engine.devices.transfers import CudaTransfers
from engine.errors import OutOfMemory
from export.native.device.step import with_device_step
from export.tracing.trace import trace
from export.tracing.variant import variant
from export.verification.compare_numbers import encoded_error, step_errors
from export.verification.tolerances import TOLERANCES
from export.weights.save import save
from kernels.device_library import device_library
from kernels.library import LibraryError
from models.package.graph_files import GraphFiles
from models.transformer import Transformer
from tests.engine.cuda.test_cuda_decoder import Full, check_that_a_text_without_memory_is_refused
from tests.engine.cuda.test_device_step import without_encoder
from tests.engine.devices.cuda_bindings import FakeBindings
from tests.export.native.test_device_step import MODELS
from tests.models.test_transformer import random_model

pytestmark = pytest.mark.timeout(300)

ROOM = 60
ATOL = 0.05
"""Of hidden states, keys and values in fp16."""
RUN_TOKENS = 64
"""Most tokens of a run here, so that there are several."""
NAMES = ("plain", "pre-norm, learned positions, untied output")

Sources = Sequence[Sequence[int]]


@dataclass
class Served:
    """A model, and its graphs on the CPU provider."""

    model: Transformer
    graphs: GraphFiles
    decoder: CudaDecoder

    @property
    def encoder(self) -> PackedEncoder:
        assert isinstance(self.decoder._encoder, PackedEncoder)
        return self.decoder._encoder

    def sources(self, lengths: Sequence[int], seed: int = 1) -> list[list[int]]:
        chance = random.Random(seed)
        return [chance.choices(range(1, self.model.config.source_vocab_size - 1), k=length) for length in lengths]

    @torch.no_grad()
    def hidden(self, source: Sequence[int]) -> torch.Tensor:
        return self.model.encode(torch.tensor([source]), torch.tensor([len(source)]))[0]

    @torch.no_grad()
    def kept(self, source: Sequence[int]) -> NDArray[np.float32]:
        """Keys and values [tensors, heads, length, head_dim]."""
        _, starts = self.model.encode_source(torch.tensor([source]), torch.tensor([len(source)]))
        return torch.cat(starts).numpy()

    def check_hidden(self, sources: Sources) -> None:
        found = self.decoder.encode(sources)
        assert [source.length for source in found] == list(map(len, sources))
        for given, source in zip(sources, found, strict=True):
            np.testing.assert_allclose(source.hidden(), self.hidden(given).numpy(), atol=ATOL, rtol=0)

    def check_kept(self, cache: CudaCache, sources: Sources) -> None:
        """Of the first rows."""
        [tensors] = [tensors for tensors in cache._blocks.tensors if tensors.first.owner == "source"]
        block = tensors.block
        raw = self.decoder._runtime.read(block.address, block.size_bytes).view(np.float16)
        shape = block.tensors, block.rows, block.heads, block.places, -1
        for slot, source in zip(cache._placement.sources(range(len(sources))), sources, strict=True):
            kept = raw.reshape(shape)[:, slot, :, : len(source)]
            np.testing.assert_allclose(kept, self.kept(source), atol=ATOL, rtol=0)


def open_served(model: Transformer, graphs: GraphFiles) -> Served:
    return Served(model, graphs, CudaDecoder.open_step(graphs, ROOM, ROOM, CPU))


@pytest.fixture(scope="module", params=NAMES)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Served:
    try:
        device_library()
    except LibraryError as error:
        pytest.skip(str(error))
    model = random_model(MODELS[request.param])
    half = variant(model, "fp16", "fused")
    return open_served(model, save(with_device_step(trace(half), half), tmp_path_factory.mktemp("graphs")))


@pytest.fixture
def served(whole: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    """With runs of at most RUN_TOKENS tokens."""
    monkeypatch.setattr(packed_encoder, "BATCH_TOKENS", RUN_TOKENS)
    return whole


@pytest.mark.parametrize(
    "lengths",
    [(1,), (16,), (17,), (ROOM,), (1, 1, 1), (15, 1), (3, 14), (9, 1, 23, 4), (60, 1, 3, 2, 33, 30, 5, 60, 60, 16)],
    ids=str,
)
def test_hidden_states_are_those_of_the_model(served: Served, lengths: tuple[int, ...]) -> None:
    served.check_hidden(served.sources(lengths))


def test_an_earlier_run_keeps_what_it_gave(served: Served) -> None:
    """The next one writes to the same workspace."""
    sources = served.sources((5, 12, 30, 30, 30, 2))
    found = [source for part in (sources[:3], sources[3:]) for source in served.decoder.encode(part)]
    for given, source in zip(sources, found, strict=True):
        np.testing.assert_allclose(source.hidden(), served.hidden(given).numpy(), atol=ATOL, rtol=0)


def test_sources_join_later_and_in_another_order(served: Served) -> None:
    lengths = 5, 60, 1, 17, 30, 2, 33
    sources, cache = served.sources(lengths), served.decoder.open_cache(rows=6)
    encoded = served.decoder.encode(sources)
    served.decoder.encode(served.sources((7, 60), seed=2))
    order = [4, 0, 6, 1]
    for index in order:
        cache.join(encoded[index])
    cache.begin_step([1] * len(order), Ask())
    cache.end_step()
    served.check_kept(cache, [sources[index] for index in order])
    cache.take([3, 1])
    for index in (2, 5, 3):
        cache.join(encoded[index])
    cache.take([0, 1, 2, 3, 4])
    served.check_kept(cache, [sources[index] for index in (1, 0, 2, 5, 3)])


@pytest.mark.parametrize(("rows", "ragged"), [(3, False), (8, True)])
def test_steps_are_as_near_to_the_model_as_behind_the_standard_encoder(whole: Served, rows: int, ragged: bool) -> None:
    older = open_served(whole.model, without_encoder(whole.graphs)).decoder
    errors = [
        max(
            max(step.logit_error, step.log_prob_error) for step in step_errors(whole.model, decoder, ROOM, rows, ragged)
        )
        for decoder in (whole.decoder, older)
    ]
    assert errors[0] < 2 * errors[1] + 0.01


def test_beams_share_a_source(served: Served) -> None:
    alone, beams = (served.decoder.open_cache(rows=4) for _ in range(2))
    for cache in (alone, beams):
        for source in served.decoder.encode(served.sources((9, 20))):
            cache.join(source)
    for cache, parents in ((beams, [0, 1, 1, 0]), (alone, [0, 1])):
        cache.begin_step([1, 1], Ask(2))
        cache.end_step()
        cache.take(parents)
    for cache, tokens in ((beams, [3, 4, 4, 3]), (alone, [3, 4])):
        cache.begin_step(tokens, Ask(2))
    few, many = alone.end_step(), beams.end_step()
    np.testing.assert_array_equal(many.token_ids[[0, 1, 2, 3]], few.token_ids[[0, 1, 1, 0]])
    np.testing.assert_allclose(many.log_probs[[0, 1, 2, 3]], few.log_probs[[0, 1, 1, 0]], atol=1e-3)


def test_what_fills_up_a_run_is_shared_out_by_length(served: Served) -> None:
    found = served.decoder.encode(served.sources((3, 16, 5, 50)))
    assert [source.computed_tokens for source in found] == [3 * 32 / 24, 16 * 32 / 24, 5 * 32 / 24, 64]


def test_what_is_fed() -> None:
    given = feed([(7, 8, 9), (5,)], np.array([3, 1], np.int32), 6, pad_id=99)
    assert given[:48].view(np.int64).tolist() == [7, 8, 9, 5, 99, 99]
    positions, firsts, lengths = given[48:].view(np.int32).reshape(3, 6).tolist()
    assert (positions, firsts, lengths) == ([0, 1, 2, 0, 0, 0], [0, 0, 0, 3, 4, 5], [3, 3, 3, 1, 1, 1])


@pytest.mark.parametrize(
    ("capacity", "buckets"),
    [(40, [16, 32, 64, 128, 256, 512, 1024, 2048]), (2049, [16, 32, 64, 128, 256, 512, 1024, 2048, 4096])],
)
def test_buckets(capacity: int, buckets: list[int]) -> None:
    assert token_buckets(packed_tokens(capacity)) == buckets


def test_a_thread_makes_a_run_of_every_size_before_its_first(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Because CUDA graphs belong to threads."""
    made, run = list[int](), PackedEncoder._run

    def running(self: PackedEncoder, bucket: Any, *given: Any) -> None:
        made.append(bucket.tokens)
        run(self, bucket, *given)

    monkeypatch.setattr(PackedEncoder, "_run", running)
    served.decoder.encode(served.sources((3,)))
    del made[:]
    for _ in range(2):
        served.decoder.encode(served.sources((3,)))
    assert made == [16, 16]
    thread = threading.Thread(target=lambda: served.decoder.encode(served.sources((17,))))
    thread.start()
    thread.join()
    assert made[2:] == [2048, 1024, 512, 256, 128, 64, 32, 16, 32]


def test_what_is_too_long_is_refused(served: Served) -> None:
    with pytest.raises(ValueError, match=f"a source has {ROOM + 1} tokens; the decoder was opened for {ROOM}"):
        served.decoder.encode(served.sources((3, ROOM + 1)))


def test_a_source_may_be_longer_than_other_runs(whole: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (packed_encoder, sizing):
        monkeypatch.setattr(module, "BATCH_TOKENS", 32)
    short = open_served(whole.model, whole.graphs)
    assert [bucket.tokens for bucket in short.encoder._buckets] == [16, 32, 64]
    short.check_hidden(short.sources((3, ROOM, 30)))


def test_a_text_without_memory_is_refused_and_the_batch_goes_on(whole: Served) -> None:
    check_that_a_text_without_memory_is_refused(open_served(whole.model, whole.graphs).decoder, whole.model.config)


def test_no_memory_for_what_a_run_gives_is_told_too(whole: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    whole.decoder.encode([(3, 1)])

    def full(self: runtime.DeviceRuntime, size_bytes: int) -> None:
        raise RuntimeError("Failed to allocate memory for requested buffer of size 1")

    with monkeypatch.context() as patch:
        patch.setattr(runtime.DeviceRuntime, "allocate", full)
        with pytest.raises(OutOfMemory):
            whole.decoder.encode([(3, 1, 4)])
    whole.check_hidden(whole.sources((3, 9)))


def test_runs_that_cannot_be_captured_are_launched_kernel_by_kernel(
    whole: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The refusal is injected: it is CUDA's. The step is captured all the same."""
    open_one = runtime.DeviceRuntime.open_session
    refused = list[str]()

    def refuse(self: runtime.DeviceRuntime, graph: Any, capture: bool = False, library: Path | None = None) -> Any:
        if capture and not refused:
            refused.append(str(graph))
            raise RuntimeError("This session cannot use the graph capture feature as requested by the user")
        return open_one(self, graph, library=library)

    monkeypatch.setattr(runtime.DeviceRuntime, "open_session", refuse)
    decoder = CudaDecoder.open_step(whole.graphs, ROOM, ROOM, replace(CPU, cuda_graphs=True))
    assert decoder.device.cuda_graphs
    assert "encoder runs are launched kernel by kernel" in caplog.text
    replace(whole, decoder=decoder).check_hidden(whole.sources((3, 40)))


def test_runs_that_fail_to_be_captured_are_told_with_a_way_out(whole: Served) -> None:
    decoder = CudaDecoder.open_step(whole.graphs, ROOM, ROOM, replace(CPU, cuda_graphs=True))
    encoder: Any = decoder._encoder
    encoder._session = Full(encoder._session, runs=1)
    with pytest.raises(DeviceError, match=r"CUDA graphs cannot be captured \(.*\); start with --no-cuda-graphs"):
        decoder.encode([(3, 1)])


def test_older_packages_are_encoded_by_the_standard_graph(whole: Served) -> None:
    decoder = open_served(whole.model, without_encoder(whole.graphs)).decoder
    assert not isinstance(decoder._encoder, PackedEncoder)
    [source] = decoder.encode([(3, 1, 4)])
    np.testing.assert_allclose(source.hidden(), whole.hidden((3, 1, 4)).numpy(), atol=ATOL, rtol=0)


def test_its_memory_is_counted(whole: Served) -> None:
    config, step = whole.model.config, whole.graphs.spec.device_step
    assert step is not None and step.encoder is not None
    loads = [Load(graphs.spec, 4, ROOM, ROOM) for graphs in (whole.graphs, without_encoder(whole.graphs))]
    cross = 2 * config.decoder_layers * config.inner(config.decoder_heads)
    assert loads[0].work_bytes - loads[1].work_bytes == 2048 * (2 * (config.width + cross) + 20)
    heavier = step.model_copy(update={"encoder": step.encoder.model_copy(update={"weight_bytes": 10**9})})
    heavy = whole.graphs.spec.model_copy(update={"device_step": heavier})
    assert replace(loads[0], graphs=heavy).weight_bytes > 10**9 > loads[0].weight_bytes


def test_its_sessions_are_gone_when_one_does_not_load(whole: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = list[Any]()

    def opening(*given: Any) -> Any:
        if len(opened) == 2:  # rows are moved, sources are kept; now the encoder
            raise RuntimeError("no such graph")
        opened.append(open_session(*given))
        return opened[-1]

    closed, close = list[SourceKeeper](), SourceKeeper.close

    def closing(self: SourceKeeper) -> None:
        closed.append(self)
        close(self)

    monkeypatch.setattr(runtime, "open_session", opening)
    monkeypatch.setattr(SourceKeeper, "close", closing)
    with pytest.raises(Exception, match="the step for GPUs does not load: no such graph"):
        CudaDecoder.open_step(whole.graphs, ROOM, ROOM, CPU)
    [keeper] = closed
    assert keeper._session is None


def test_what_it_took_is_given_back(whole: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its copies are CUDA's here, on CUDA that is not there; its graphs run on the CPU."""
    cuda = FakeBindings()
    monkeypatch.setattr(runtime, "open_transfers", lambda device: CudaTransfers(CudaRuntime(cuda), device.index))
    served = open_served(whole.model, whole.graphs)
    sources, cache = served.sources((9, 20, 3)), served.decoder.open_cache(rows=3)
    for source in served.decoder.encode(sources):
        cache.join(source)
    cache.begin_step([1, 1, 1], Ask())
    cache.end_step()
    served.check_kept(cache, sources)
    served.check_hidden(sources)
    assert cuda.held
    served.decoder.close()
    assert not cuda.held


def test_export_sees_an_encoder_that_is_another(whole: Served) -> None:
    assert encoded_error(whole.model, whole.decoder) < ATOL
    other = random_model(whole.model.config)
    with torch.no_grad():
        other.source_positions.mul_(1.5)
    assert encoded_error(other, whole.decoder) > TOLERANCES["fp16"].error
