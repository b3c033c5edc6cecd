"""The library, where one was built."""

import pytest

from kernels.library import Library, LibraryError, open_library


@pytest.fixture(scope="session")
def library() -> Library:
    try:
        return open_library()
    except LibraryError as error:
        pytest.skip(str(error))
