"""What a lane is given by the host."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.cuda.lanes.lane import Lane


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of every step whose input came from the host."""
    rows: list[int] = []
    fill = Lane.fill

    def counting(self: Lane, token_ids: NDArray[np.int64], *arguments: Any) -> None:
        rows.extend([len(token_ids)] * bool(len(token_ids)))
        fill(self, token_ids, *arguments)

    monkeypatch.setattr(Lane, "fill", counting)
    return rows
