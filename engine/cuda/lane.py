"""What goes into a decoder step on a device, and what comes out."""

import numpy as np
from numpy.typing import NDArray

from engine.cuda.runtime import DeviceRuntime
from engine.decoder import Found, TokenIds


class Lane:
    """The input and the output of a step, on the device and in staging memory: one copy in, one copy out.

    Where there are two lanes, the device can make a step in one while the host reads the other.
    """

    def __init__(self, runtime: DeviceRuntime, rows: int, candidates: int) -> None:
        """Has room for so many rows, and for so many candidates of each."""
        self._rows, self._transfers = rows, runtime.transfers
        self._feed, self._answer = runtime.allocate(rows * 16), runtime.allocate(rows * candidates * 12)
        self._transfers.clear(self._feed.address, self._feed.size_bytes)  # warming up decodes what lies there
        self._staged_feed = self._transfers.staging(rows * 16)
        self._staged_answer = self._transfers.staging(rows * candidates * 12)
        self._fetched = self._transfers.new_event()

    @property
    def ids(self) -> int:
        """Address of the token that each row is fed, int64 [rows]."""
        return self._feed.address

    @property
    def positions(self) -> int:
        """Address of each row's position, int32 [rows]."""
        return self._feed.address + 8 * self._rows

    @property
    def source_last(self) -> int:
        """Address of the place of each row's last source token, int32 [rows]."""
        return self._feed.address + 12 * self._rows

    @property
    def candidates(self) -> int:
        """Address of the candidates, int64 [rows, k]."""
        return self._answer.address

    def log_probs(self, rows: int, k: int) -> int:
        """Address of the candidates' log-probabilities, float [rows, k], of a step of this size."""
        return self._answer.address + 8 * rows * k

    def fill(self, token_ids: TokenIds, positions: NDArray[np.int32], source_last: NDArray[np.int32]) -> None:
        """Enqueues the copy of a step's input. `source_last`: of all rows of the cache, live or not."""
        live, rows, feed = len(token_ids), self._rows, self._staged_feed
        feed[:] = 0
        feed[: 8 * rows].view(np.int64)[:live] = token_ids
        feed[8 * rows : 12 * rows].view(np.int32)[:live] = positions
        feed[12 * rows :].view(np.int32)[:] = source_last
        self._transfers.upload(feed, self._feed.address)

    def fetch(self, rows: int, k: int) -> None:
        """Enqueues the copy of a step's output."""
        self._transfers.download(self._answer.address, self._staged_answer[: rows * k * 12])
        self._transfers.record(self._fetched)

    def read(self, rows: int, k: int) -> Found:
        """What was fetched last, once it is there. The arrays are overwritten by the next step in this lane."""
        self._transfers.wait_for(self._fetched)
        numbers = rows * k
        ids = self._staged_answer[: 8 * numbers].view(np.int64).reshape(rows, k)
        log_probs = self._staged_answer[8 * numbers : 12 * numbers].view(np.float32).reshape(rows, k)
        return Found(ids, log_probs)
