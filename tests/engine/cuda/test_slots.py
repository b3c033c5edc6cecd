"""Places of slots are copied on a device as on the host, whoever takes over whose."""

import random
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from engine.cuda.blocks import CacheBlocks, allocate_blocks
from engine.cuda.lanes.lane import Lane
from engine.cuda.placing import slots
from engine.cuda.placing.history import History
from engine.cuda.placing.rows import Rows
from engine.cuda.placing.slots import Slots
from engine.cuda.runtime import DeviceRuntime
from engine.devices.session import CPU
from engine.devices.sizing import Load
from models.package.declared.graphs import GraphFile, NativeStep
from models.package.derived import graphs_spec, step_tensors
from models.package.signature import DEVICE_DECODER
from tests.models.test_transformer import config

ROWS, SOURCE_PLACES, PLACES = 5, 4, 12
SHAPE = config(width=32, decoder_heads=2, encoder_heads=2)
SPEC = graphs_spec(SHAPE, "fp16")
TENSORS = step_tensors(SHAPE, "fp16")


@pytest.fixture
def runtime() -> Iterator[DeviceRuntime]:
    with closing(DeviceRuntime(CPU, PLACES)) as runtime:
        yield runtime


def blocks_of(runtime: DeviceRuntime) -> CacheBlocks:
    spec = SPEC.model_copy(update={"cache": TENSORS})
    return allocate_blocks(runtime, spec, ROWS, SOURCE_PLACES, PLACES, 0, Slots.spare_rows)


@pytest.mark.parametrize("moved_bytes", [1, 1 << 24])
def test_places_are_copied_even_if_two_slots_take_over_the_same_of_each_other(
    runtime: DeviceRuntime, monkeypatch: pytest.MonkeyPatch, moved_bytes: int
) -> None:
    """moved_bytes: position by position, or all at once."""
    monkeypatch.setattr(slots, "MOVED_BYTES", moved_bytes)
    blocks, chance = blocks_of(runtime), random.Random(1)
    [keys_and_values] = blocks.of_hypotheses
    block = keys_and_values.block
    numbers = np.random.default_rng(1).integers(0, 256, block.size_bytes, np.uint8)
    runtime.outbox.send_to(numbers, block.address)
    before = numbers.reshape(block.tensors, ROWS + 1, block.heads, PLACES, block.slot_bytes)
    copies = [
        (source, target, place)
        for place in range(PLACES - 1)
        for target, source in enumerate(chance.sample(range(ROWS), k=ROWS))
        if source != target
    ]
    assert any((target, source, place) in copies for source, target, place in copies)
    after = before.copy()
    for source, target, place in copies:
        after[:, target, :, place] = before[:, source, :, place]
    placement = Slots(runtime, blocks, Rows(ROWS))
    placement._settle(*np.array(copies).T)
    found = runtime.read(block.address, block.size_bytes).reshape(after.shape)
    np.testing.assert_array_equal(found, after)


def test_the_device_has_the_tables(runtime: DeviceRuntime) -> None:
    rows = Rows(ROWS)
    placement = Slots(runtime, blocks_of(runtime), rows)
    lane, _ = Lane.pair(runtime, ROWS, candidates=8)

    def send() -> None:
        placement.send(None)
        lane.fill(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(ROWS, np.int32), placement.slots)

    def tables() -> dict[str, list[int]]:
        places = placement.inputs(lane.feed, 3).items()
        return {
            name: runtime.read(address, 4 * int(np.prod(shape))).view(np.int32).reshape(shape).tolist()
            for name, (_, shape, address) in places
        }

    send()
    identity = [[slot] * PLACES for slot in range(ROWS + 1)]
    assert tables() == {"slots": [ROWS] * 3, "source_slots": [ROWS] * 3, "history": identity}
    for _ in range(2):
        placement.join(rows.join(source_length=3))
    rows.advance()
    for taken in (placement, rows):
        taken.take(np.array([0, 1, 1]))
    send()
    identity[2][0] = 1
    assert tables() == {"slots": [0, 1, 2], "source_slots": [0, 1, 1], "history": identity}
    assert placement.cached(3) == ROWS + 1
    assert placement.sources([2, 0]) == [1, 0]


def test_the_memory_of_slots_is_counted(runtime: DeviceRuntime) -> None:
    step = NativeStep(decoder=GraphFile(file=DEVICE_DECODER, weight_bytes=0), operators=1, cache=TENSORS)
    load = Load(SPEC.model_copy(update={"device_step": step}), ROWS, SOURCE_PLACES, PLACES)
    blocks = sum(tensors.block.size_bytes for tensors in blocks_of(runtime).tensors)
    assert load.cache_bytes == blocks + 4 * History.table_numbers(ROWS, PLACES)
