"""What a decoder took from CUDA it gives back: streams, events and page-locked memory, on CUDA that is not there."""

import weakref
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from engine.cuda import runtime
from engine.cuda.decoder import CudaDecoder
from engine.decoder import Ask
from engine.devices.cudart import CudaError, CudaRuntime
from engine.devices.session import CPU, DeviceError, open_session
from engine.devices.transfers import CudaTransfers
from engine.loading import load
from tests.engine.cuda.test_cuda_decoder import Twins, open_twins, twins
from tests.engine.devices.cuda_bindings import NO_DEVICE, STREAM, FakeBindings

__all__ = ["twins"]

pytestmark = pytest.mark.parametrize("twins", ["post-norm, relu"], indirect=True)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeBindings:
    """What every decoder opened from now on copies with. Its graphs run on the CPU."""
    bindings = FakeBindings()
    monkeypatch.setattr(runtime, "open_transfers", lambda device: CudaTransfers(CudaRuntime(bindings), device.index))
    return bindings


def open_decoder(twins: Twins) -> CudaDecoder:
    return open_twins(twins.graphs, twins.config).device


def decode(decoder: CudaDecoder) -> None:
    """Some steps of a cache, of which the last ones are begun ahead."""
    cache, tokens = decoder.open_cache(rows=2), [1, 2]
    for source in decoder.encode([(3, 1, 4), (1, 5)]):
        cache.join(source)
    for _ in range(4):
        cache.begin_step(tokens, Ask(2))
        tokens = cache.end_step().token_ids[:, 0].tolist()


def test_everything_is_given_back_once(twins: Twins, cuda: FakeBindings) -> None:
    decoder = open_decoder(twins)
    decode(decoder)
    decode(decoder)
    held = list(cuda.held.values())
    assert (held.count("stream"), held.count("event")) == (1, 4)  # two lanes of two caches
    assert len(held) == 1 + 4 + 2 + 8  # the outbox and the desk; each lane's input and output
    decoder.close()
    assert not cuda.held
    decoder.close()


def test_a_decoder_that_decoded_nothing_gives_back_what_it_took(twins: Twins, cuda: FakeBindings) -> None:
    open_decoder(twins).close()
    assert not cuda.held


def test_sessions_go_before_the_stream_that_they_run_on(
    twins: Twins, cuda: FakeBindings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where somebody keeps a cache."""
    destroy = cuda.cudaStreamDestroy
    sessions: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def opening(*arguments: Any) -> Any:
        session = open_session(*arguments)
        sessions.append(weakref.ref(session))
        return session

    def destroying(stream: int) -> Any:
        alive.append(sum(session() is not None for session in sessions))
        return destroy(stream)

    monkeypatch.setattr(runtime, "open_session", opening)
    monkeypatch.setattr(cuda, "cudaStreamDestroy", destroying)
    decoder = open_decoder(twins)
    decode(decoder)
    cache = decoder.open_cache(rows=1)
    decoder.close()
    assert len(sessions) == 3 + 2  # rows are moved, the encoder, the decoder; each cache's steps ahead are fed
    assert alive == [0]
    del cache


@pytest.mark.parametrize("function", ["cudaHostAlloc", "cudaEventCreateWithFlags", "cudaStreamCreateWithFlags"])
def test_what_fails_half_way_leaves_nothing(twins: Twins, cuda: FakeBindings, function: str) -> None:
    """The first call fails, then only the second, and so on until none does."""
    works, failures = getattr(cuda, function), 0
    while True:
        setattr(cuda, function, failing_at(failures, works))
        decoder = None
        try:
            decoder = open_decoder(twins)
            decode(decoder)
            break
        except CudaError as error:
            assert error.code == NO_DEVICE
            failures += 1
        finally:
            if decoder is not None:
                decoder.close()
            assert not cuda.held
    assert failures == {"cudaHostAlloc": 6, "cudaEventCreateWithFlags": 2, "cudaStreamCreateWithFlags": 1}[function]


def failing_at(index: int, works: Callable[..., Any]) -> Callable[..., Any]:
    calls = iter(range(1 << 30))
    return lambda *arguments: (NO_DEVICE, None) if next(calls) == index else works(*arguments)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_graph_that_does_not_load_leaves_nothing(
    twins: Twins, cuda: FakeBindings, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = 0

    def opening(*arguments: Any) -> Any:
        nonlocal opened
        opened += 1
        if opened == number:
            raise RuntimeError("no such graph")
        return open_session(*arguments)

    monkeypatch.setattr(runtime, "open_session", opening)
    with pytest.raises(RuntimeError, match="no such graph"):
        open_decoder(twins)
    assert not cuda.held


def test_batches_without_room_leave_nothing(twins: Twins, cuda: FakeBindings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "open_decoder", lambda *_: open_decoder(twins))
    with pytest.raises(DeviceError, match="the device has no memory for 1000000000 rows"):
        load.load(Mock(precision="fp16"), CPU, load.Limits(rows=10**9))
    assert not cuda.held


def test_a_device_that_has_failed_ends_the_closing_with_a_warning(
    twins: Twins, cuda: FakeBindings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Every call says so from then on. All the rest is tried all the same."""
    decoder, tried = open_decoder(twins), list[str]()
    decode(decoder)
    for function in ("cudaStreamSynchronize", "cudaStreamDestroy", "cudaEventDestroy", "cudaFreeHost"):

        def failing(handle: int, function: str = function) -> tuple[int]:
            tried.append(function)
            return (NO_DEVICE,)

        monkeypatch.setattr(cuda, function, failing)
    decoder.close()
    assert "what the device was doing has failed: cudaStreamSynchronize: no CUDA-capable device" in caplog.text
    assert "the device does not take everything back: cuda" in caplog.text
    assert (tried.count("cudaFreeHost"), tried.count("cudaEventDestroy")) == (6, 2)
    assert tried[-1] == "cudaStreamDestroy"
    assert STREAM in cuda.held
