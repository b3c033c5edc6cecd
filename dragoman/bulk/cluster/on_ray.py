"""Who translates on a cluster: Ray Data has engines do it, and finds others for those that are lost.

A part is kept until its translations are there: an engine that gets it once more, because a node died, answers the
same, and what comes twice is dropped. So the journal is that of a run on one machine.
"""

import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self

import ray
from ray._private.state import available_resources_per_node
from ray.data import ActorPoolStrategy, DataContext
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dragoman.bulk.cluster.node_engine import NodeEngine
from dragoman.bulk.cluster.parts import NUMBER, TOLD, Feed, Parts, Told, unpacked
from dragoman.bulk.engine import MORE_THREADS, check_repeatable, package_hashes
from dragoman.bulk.errors import BulkError
from dragoman.bulk.once import Outcome
from dragoman.bulk.windows import BATCH
from dragoman.wire.messages import TranslationOptions

KNOCK_S = 10.0
"""How long the head of a cluster may take to answer."""
AHEAD = 2
"""Parts for each thread of an engine: the one it works on, and the next."""


class OnRay:
    """Joins the cluster when the first text needs an engine, and leaves it at the end."""

    def __init__(
        self,
        address: str,
        packages: Sequence[Path],
        options: TranslationOptions,
        device: Literal["cpu", "cuda", "auto"],
        workers: int | None,
        tell: Callable[[str], None],
    ) -> None:
        """`address`: of the cluster, HOST:PORT or "auto". workers: of each engine, each a core; None is 1.

        tell: what a user is to know while the run goes on. Raises WrongUsage.
        """
        self.hashes = package_hashes(packages)
        check_repeatable(options, options.get("do_sample"))
        self._address, self._workers, self._tell = address, workers or 1, tell
        self._gpus = 0 if device == "cpu" else 1
        """Of each engine."""
        self._packages, self._options, self._device = [path.resolve() for path in packages], options, device
        self._feed: Any = None
        self._told: Iterator[dict[str, Any]] = iter(())
        self._outcomes: dict[int, list[Outcome]] = {}
        """Of parts that came before others that are waited for."""
        self._given = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._feed is not None:
            self._told = iter(())  # ends what Ray Data has under way
            ray.shutdown()

    def translated(self, windows: Iterator[list[str]]) -> Generator[list[Outcome]]:
        """See `Translated`. Raises BulkError."""
        under_way = deque[range]()
        for texts in windows:
            under_way.append(self._give(texts))
            while len(under_way) > 1 and self._has_enough(under_way):
                yield self._joined(under_way.popleft())
        while under_way:
            yield self._joined(under_way.popleft())

    def _give(self, texts: list[str]) -> range:
        """The numbers of the parts that the texts become."""
        batches = [texts[first : first + BATCH] for first in range(0, len(texts), BATCH)]
        if batches and self._feed is None:
            self._join()
        numbers = range(self._given, self._given + len(batches))
        with _ray_going_on():
            for number, batch in zip(numbers, batches, strict=True):
                self._feed.give.remote(number, batch)
        self._given = numbers.stop
        return numbers

    def _joined(self, numbers: range) -> list[Outcome]:
        while missing := set(numbers) - self._outcomes.keys():
            number, told = self._next()
            if isinstance(told, BulkError):
                raise told
            if number >= min(missing):
                self._outcomes[number] = told
        if numbers:
            self._feed.forget.remote(numbers.stop)
        return [outcome for number in numbers for outcome in self._outcomes.pop(number)]

    def _next(self) -> tuple[int, Told]:
        try:
            with _ray_going_on():
                part = next(self._told)
        except StopIteration as error:
            raise BulkError("Ray Data ended before all was translated: the same command goes on") from error
        return int(part[NUMBER][0]), unpacked(part[TOLD][0])

    def _has_enough(self, under_way: Sequence[range]) -> bool:
        """Of windows. Those of which all is known have no parts, and any number of them may come."""
        if self._feed is None:  # nothing is for an engine yet
            return True
        return max(len(under_way), under_way[-1].stop - under_way[0].start) > self._most_parts()

    def _most_parts(self) -> int:
        """Under way at a time, so that no engine has nothing to do; there may be more nodes than before."""
        engines = max(1, int(ray.cluster_resources().get("CPU", 1) // self._workers))
        return AHEAD * engines * (self._workers + MORE_THREADS)

    def _knock(self) -> None:
        """Raises OSError where nobody listens: Ray would wait for minutes."""
        host, _, port = self._address.rpartition(":")
        if port.isdecimal():
            socket.create_connection((host.strip("[]"), int(port)), KNOCK_S).close()

    def _join(self) -> None:
        """Raises BulkError."""
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # what it tells beside that is meant so
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told what is translated, and a process less
        try:
            self._knock()
            ray.init(self._address, log_to_driver=False, logging_level="error")
        except (OSError, RuntimeError, ValueError) as error:
            raise BulkError(f"{self._address} is no cluster that takes us: {_reason(error)}") from error
        if missing := no_room({"CPU": self._workers, "GPU": self._gpus}, available_resources_per_node().values()):
            self._tell(f"no node of {self._address} has room for an engine now: {missing}; the run waits for one")
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._feed = ray.remote(num_cpus=0)(Feed).options(scheduling_strategy=here).remote()
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        context = DataContext.get_current()
        context.enable_progress_bars = False
        context.target_max_block_size = 1  # byte: a part is a block, and does not wait for those that come after it
        texts = ray.data.read_datasource(Parts(self._feed), override_num_blocks=1, concurrency=1, num_cpus=0)
        # Nothing is fetched ahead: parts that come next may not be given before this one is in the journal.
        self._told = iter(self._by_engines(texts).iter_batches(batch_size=None, prefetch_batches=0))

    def _by_engines(self, texts: Any) -> Any:
        """The dataset of what becomes of the parts of one."""
        return texts.map_batches(
            NodeEngine,
            fn_constructor_args=(self._packages, self.hashes, self._options, self._device, self._workers),
            batch_size=1,  # a part, as a block has one; for GPUs Ray Data takes no None
            compute=_pool(self._workers + MORE_THREADS),
            num_cpus=self._workers,
            num_gpus=self._gpus,
        )


def no_room(wanted: Mapping[str, int], free: Collection[Mapping[str, float]]) -> str:
    """What an engine takes that no node has. Empty: one has it.

    wanted: of an engine, by the names of Ray. free: of each node
    """
    if any(all(node.get(name, 0) >= count for name, count in wanted.items()) for node in free):
        return ""
    takes = ", ".join(f"{count} {name}" for name, count in wanted.items())
    most = ", ".join(f"{max((node.get(name, 0) for node in free), default=0):g} {name}" for name in wanted)
    return f"it takes {takes} (--workers, --device), and the most that a node has free are {most}"


def _pool(threads: int) -> ActorPoolStrategy:
    """Of engines: as many as there is work and room for."""
    return ActorPoolStrategy(
        min_size=1,
        max_tasks_in_flight_per_actor=AHEAD * threads,
        max_concurrent_calls_per_actor=threads,
        enable_true_multi_threading=True,
    )


@contextmanager
def _ray_going_on() -> Iterator[None]:
    """Raises BulkError where it does not: texts go to the object store, too, if they are long."""
    try:
        yield
    except RayError as error:
        raise BulkError(f"Ray cannot go on: {_reason(error)}. The same command does, on another cluster") from error


def _reason(error: Exception) -> str:
    """The last line of what Ray tells, above which are tracebacks of other processes."""
    return str(error).strip().splitlines()[-1].strip()
