"""An engine on a node: the process of an actor, in whose threads parts are translated."""

import pickle
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import ray

from dragoman.bulk.cluster.parts import NUMBER, TEXTS, TOLD, Told, packed
from dragoman.bulk.engine import Engine
from dragoman.bulk.errors import BulkError, WrongUsage
from dragoman.bulk.windows import outcomes_of
from dragoman.errors import DragomanError
from dragoman.wire.messages import TranslationOptions


class NodeEngine:
    """What Ray Data calls with one part after another, from several threads. The first loads the model."""

    def __init__(
        self,
        packages: Sequence[Path],
        hashes: Sequence[str],
        options: TranslationOptions,
        device: Literal["cpu", "cuda", "auto"],
        workers: int,
    ) -> None:
        """hashes: the SHA-256 of the packages, where the run began."""
        self._packages, self._hashes = packages, list(hashes)
        self._options, self._device, self._workers = options, device, workers
        self._engine: Engine | None = None
        self._lock = threading.Lock()

    def __call__(self, part: dict[str, Any]) -> dict[str, list[Any]]:
        """A part in bytes becomes what is told of it."""
        [number], [texts] = part[NUMBER], part[TEXTS]
        return {NUMBER: [number], TOLD: [packed(self._translated(pickle.loads(texts)))]}

    def _translated(self, texts: list[str]) -> Told:
        try:
            return outcomes_of(self._opened().translate, texts) if texts else []
        except (BulkError, DragomanError) as error:
            why = f"on node {ray.util.get_node_ip_address()}: {error}"
            return WrongUsage(why) if isinstance(error, WrongUsage) else BulkError(why)

    def _opened(self) -> Engine:
        """Raises BulkError."""
        with self._lock:
            if self._engine is None:
                engine = Engine(self._packages, self._options, self._device, self._workers)
                if engine.hashes != self._hashes:
                    raise BulkError(
                        f"its packages have SHA-256 {', '.join(engine.hashes)}, and those here "
                        f"{', '.join(self._hashes)}: put the same on every node, at the same place"
                    )
                self._engine = engine
            return self._engine
