"""A disk that takes no more: files of this process end after so many bytes."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The next byte is refused with "File too large", as one of a full disk is with "No space left on device"."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
