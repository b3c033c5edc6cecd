"""The HTTP face: native JSON and streams, what others' clients know, and pages for people. Needs the extra `http`."""

from collections.abc import Sequence
from importlib.util import find_spec

MODULES = ("httptools", "py3langid", "python_multipart", "starlette", "uvicorn")
"""What the extra brings."""


def missing_modules() -> Sequence[str]:
    """Those that are not installed. The rest of this package needs all of them."""
    return [name for name in MODULES if find_spec(name) is None]
