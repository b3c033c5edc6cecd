"""Texts on their way to the engines, in parts that are numbered, and what becomes of them on their way back."""

import asyncio
import itertools
import pickle
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import pyarrow as pa
from ray.data import Datasource, ReadTask
from ray.data.block import BlockMetadata

from dragoman.bulk.errors import BulkError
from dragoman.bulk.once import Outcome
from dragoman.errors import DragomanError

NUMBER, TEXTS, TOLD = "number", "texts", "told"
"""Columns."""
Told = list[Outcome] | BulkError
"""What became of a part; or why nothing can become of any."""


class Feed:
    """An actor that has the parts that are under way, beside the process that reads them from files."""

    def __init__(self) -> None:
        self._parts: dict[int, list[str]] = {}
        self._done = 0
        self._changed = asyncio.Condition()

    async def give(self, number: int, texts: list[str]) -> None:
        """A part is to be translated."""
        async with self._changed:
            self._parts[number] = texts
            self._changed.notify_all()

    async def take(self, number: int) -> list[str]:
        """The texts of a part, once they are there; whoever lost them may ask again. Of one that is done, none."""
        async with self._changed:
            await self._changed.wait_for(lambda: number in self._parts or number < self._done)
            return self._parts.get(number, [])

    async def forget(self, stop: int) -> None:
        """The parts before this one are done."""
        for number in range(self._done, stop):
            self._parts.pop(number, None)
        self._done = max(self._done, stop)


class Parts(Datasource):  # type: ignore[misc]  # Ray is not installed where types are checked
    """All parts that are given: one task waits for one after the other, and makes a block of one row of each.

    A task for each would be a process again and again: a node ends those that have nothing to do for a second, and one
    takes seconds of a core to begin.
    """

    def __init__(self, feed: Any) -> None:
        """feed: the actor."""
        super().__init__()
        self._feed = feed

    @property
    def supports_distributed_reads(self) -> bool:
        """Parts are read where they are given."""
        return False

    def get_name(self) -> str:
        return "Parts"

    def estimate_inmemory_data_size(self) -> int | None:
        return None

    def get_read_tasks(self, parallelism: int, *_: object, **__: object) -> list[ReadTask]:
        """The one."""
        unknown = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
        return [ReadTask(_reading(self._feed), unknown)]


def _reading(feed: Any) -> Callable[[], Iterator[pa.Table]]:
    def read() -> Iterator[pa.Table]:
        import ray

        for number in itertools.count():
            texts = ray.get(feed.take.remote(number))
            yield pa.table({NUMBER: [number], TEXTS: [pickle.dumps(texts)]})

    return read


def packed(told: Told) -> bytes:
    """An error goes as its class and its fields: exceptions do not say themselves what they are made of."""
    if isinstance(told, BulkError):
        return pickle.dumps(told)
    return pickle.dumps([one if isinstance(one, str) else (type(one), _fields(one)) for one in told])


def unpacked(data: bytes) -> Told:
    """What was packed."""
    told = pickle.loads(data)
    return told if isinstance(told, BulkError) else [one if isinstance(one, str) else one[0](*one[1]) for one in told]


def _fields(error: DragomanError) -> list[Any]:
    return [getattr(error, field.name) for field in fields(error)]
