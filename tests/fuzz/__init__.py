"""Targets for a fuzzer that sees what is reached. Each module's `trying` gives what tries an input.

It raises for whatever is neither an answer nor a refusal. The folders of `corpus` have inputs for each.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
TARGETS = {
    "messages": "bytes to every method of the gRPC port",
    "http": "requests to the HTTP port: heads, paths and bodies",
    "manifests": "manifest.json of a package, with the graphs that it declares",
    "tokenizers": "tokenizer.json",
    "checkpoints": "checkpoint.toml beside weights",
    "documents": "documents of every format",
    "journals": "the journal of `dragoman bulk`",
}
"""The modules, and what they try."""

Attempt = Callable[[bytes], object]


def trying(target: str) -> AbstractContextManager[Attempt]:
    """What tries the inputs of a target. Only what it needs is imported, and only now: see `__main__`."""
    found: AbstractContextManager[Attempt] = import_module(f"{__name__}.{target}").trying()
    return found


def inputs(target: str) -> list[Path]:
    """Those that are checked in."""
    return sorted((CORPUS / target).iterdir())
