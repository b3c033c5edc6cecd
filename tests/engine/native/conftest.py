"""The library, where one was built."""

from tests.kernels.conftest import library

__all__ = ["library"]
