"""The library, where one was built."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kernels.library import LibraryError, open_library
from tests.export.native.slots import Slots


@pytest.fixture
def open_slots(tmp_path: Path) -> Callable[..., Slots]:
    """Loads native graphs, and lays out so many slots for so many tokens."""
    try:
        return partial(Slots, open_library(), tmp_path)
    except LibraryError as error:
        pytest.skip(str(error))
