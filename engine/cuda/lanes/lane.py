"""What goes into a decoder step on a device, and what comes out."""

from typing import Self

import numpy as np
from numpy.typing import NDArray

from engine.cuda.lanes.feed import ROW_BYTES, Fed, Feed
from engine.cuda.lanes.layout import Layout
from engine.cuda.runtime import DeviceRuntime
from engine.decoder import Found
from engine.devices.buffers import ALIGNMENT, Buffer

NO_COSTS = np.zeros(0)


class Lane:
    """The input and the output of a step, on the device and in staging memory: one copy in, one copy out.

    There are two: the device can make a step in one while the host reads the other. Before a step's output lies the
    input of the other lane, so that the host sees too what the device has made of it for the next step.
    """

    def __init__(self, runtime: DeviceRuntime, rows: int, own: Buffer, other: Buffer) -> None:
        """Has room for so many rows.

        own: has room for its input and the other lane's output; other: for the other way round
        """
        self._transfers = transfers = runtime.transfers
        self._outbox, self._copies = runtime.outbox, 0
        self._before_answer = _before_answer(rows)
        self.feed = Feed(rows, own.address)
        self._buffers = own, other
        self._fetched_from = other.address
        self._staged_feed, self._staged = transfers.staging(rows * ROW_BYTES), transfers.staging(other.size_bytes)
        self.fed, self._all = Fed.of(self._staged_feed), np.arange(rows)
        """What was filled in last, and the numbers of rows."""
        self.after = Fed.of(self._staged[: rows * ROW_BYTES])
        """What the other lane was fed when this one was fetched."""
        self._fetched = transfers.new_event()

    @classmethod
    def pair(cls, runtime: DeviceRuntime, rows: int, candidates: int) -> tuple[Self, Self]:
        """Both lanes, with room for so many candidates of each row."""
        one, other = (runtime.allocate(_before_answer(rows) + rows * candidates * 12) for _ in range(2))
        return cls(runtime, rows, one, other), cls(runtime, rows, other, one)

    @property
    def candidates(self) -> int:
        """Address of the candidates, int64 [rows, k]."""
        return self._fetched_from + self._before_answer

    def log_probs(self, rows: int, k: int) -> int:
        """Address of the candidates' log-probabilities, float [rows, k], of a step of this size."""
        return self.candidates + 8 * rows * k

    def fill(
        self,
        token_ids: NDArray[np.int64],
        positions: NDArray[np.int32],
        source_last: NDArray[np.int32],
        slots: NDArray[np.int32],
        layout: Layout | None = None,
        costs: NDArray[np.float64] = NO_COSTS,
    ) -> None:
        """Enqueues the copy of a step's input. `source_last` and `slots` are of all rows of the cache, live or not.

        layout, costs: of the rows' searches, and of the hypotheses of beam searches, where the device goes on
        """
        fed, live = self.fed, len(token_ids)
        fed.ids[:live], fed.ids[live:] = token_ids, 0
        fed.numbers[:] = 0
        fed.positions[:live], fed.source_last[:] = positions, source_last
        fed.slots[:], fed.source_slots[:] = slots
        fed.parents[:] = fed.first[:] = self._all
        if layout is not None:
            fed.first[:live], fed.width[:live] = layout.first, layout.width
        fed.costs[:] = 0
        fed.costs[live - len(costs) : live] = costs
        self._transfers.upload(self._staged_feed, self.feed.ids)

    def fetch(self, rows: int, k: int) -> None:
        """Enqueues the copy of a step's output, and of what the other lane is fed by now."""
        self._transfers.download(self._fetched_from, self._staged[: self._before_answer + rows * k * 12])
        self._transfers.record(self._fetched)
        self._copies = self._outbox.copies

    def read(self, rows: int, k: int) -> Found:
        """What was fetched last, once it is there. The arrays are overwritten by the next step in this lane."""
        self._transfers.wait_for(self._fetched)
        # What was sent later, such as sources while a step made ahead was under way, may not have arrived.
        if self._outbox.copies == self._copies:
            self._outbox.empty()
        answer, numbers = self._staged[self._before_answer :], rows * k
        ids = answer[: 8 * numbers].view(np.int64).reshape(rows, k)
        log_probs = answer[8 * numbers : 12 * numbers].view(np.float32).reshape(rows, k)
        return Found(ids, log_probs)


def _before_answer(rows: int) -> int:
    """Bytes of a feed, and what is left free behind it."""
    return -(-rows * ROW_BYTES // ALIGNMENT) * ALIGNMENT
