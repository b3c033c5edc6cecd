"""The commands there are: the client's own, and those of other packages, entry points of the group `dragoman.commands`.

The client itself imports none of those packages.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import dragoman

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

OWN = {
    "translate": "translate texts, one line out for every line in",
    "encode": "turn texts into vectors, one line out for every line in",
    "classify": "give labels to texts or their tokens, one line out for every line in",
    "score": "tell how probable given translations are, one line out for every line in",
    "bulk": "translate files into files, by the engine in this process",
    "models": "list the server's models and their limits",
    "reload": "have the server take up a model's new package while it serves",
    "health": "tell whether the server is serving; the exit code is 0 only then",
    "completion": "print what completes commands and options in a shell",
}
"""What each does."""
GROUP = "dragoman.commands"
CHECKOUT = {
    "serve": "serve a package to many callers at once",
    "export": "make a package of a checkpoint",
    "train": "train a model",
    "inspect": "show what a package does with a text, as an HTML page",
    "pull": "fetch a model by its name and make a package of it",
    "show": "say what a package is, or which there are",
    "rm": "remove a package that pull keeps",
}
"""Those that a checkout of Dragoman has."""
MISSING = {
    "serve": "the server is not installed here; in a checkout: make run",
    "export": "export is not installed here; in a checkout: make setup",
    "train": "training is not installed here; in a checkout: make setup",
    "inspect": "inspection is not installed here; in a checkout: make setup",
    "pull": "export is not installed here; in a checkout: make setup",
    "show": "packages cannot be read here; in a checkout: make run",
    "rm": "packages cannot be read here; in a checkout: make run",
}
"""What to say where they are not."""


def summaries() -> dict[str, str]:
    """All commands that are there, and what each does."""
    return OWN | {name: CHECKOUT.get(name, "") for name in _points()}


def run(name: str, arguments: Sequence[str]) -> int:
    """Calls one of another package with its arguments. Gives its exit code."""
    code: int = _points()[name].load()(arguments)
    return code


def _points() -> "dict[str, EntryPoint]":
    from importlib.metadata import entry_points  # not before: it takes longer than all of this, and our own need none

    return {point.name: point for point in entry_points(group=GROUP) if _is_here(point)}


def _is_here(point: "EntryPoint") -> bool:
    """Whether its package is installed. Of ours, beside this one: a stranger's `server` may be on the path."""
    spec = find_spec(point.module.partition(".")[0])
    if spec is None or spec.origin is None:
        return False
    return point.name not in CHECKOUT or Path(spec.origin).parents[1] == Path(dragoman.__file__).parents[1]
