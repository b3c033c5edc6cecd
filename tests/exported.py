"""Packages that tests export, kept in pytest's cache until something changes that decides what they are."""

import fcntl
import hashlib
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from export.__main__ import main
from models.package.folder import Package, sha256

ROOT = Path(__file__).parent.parent
ZOO = ROOT / "models" / "zoo" / "en-pt"
CODE = ("export", "engine", "kernels", "models")
"""What `python -m export` may import: pyproject.toml's first contract lets it reach nothing else."""
NO_CODE = ("models/zoo", "kernels/build", "kernels/lib")
"""And what of it is none."""
KEPT = 3
"""Packages of earlier states of the code that stay."""


def kept(packages: Path, name: str, checkpoint: Path, *options: str) -> Package:
    """Exports a checkpoint into the folder of packages, unless that was done before with the same code and options."""
    folder = place(packages, name, checkpoint, options)
    folder.parent.mkdir(exist_ok=True)
    # pytest may run in several processes: those that want the same package wait for the first.
    with _alone(folder.with_name(f"{folder.name}.lock")):
        if not folder.exists():
            _export(checkpoint, folder, *options)
            with _alone(packages / "lock"):
                _prune(packages)
    return Package.open(folder)


def place(packages: Path, name: str, checkpoint: Path, options: Sequence[str], root: Path = ROOT) -> Path:
    """Where the package of a checkpoint lies: a name made of all that decides what it is."""
    content = [f"{file.name} {sha256(file)}" for file in sorted(checkpoint.iterdir())]
    return packages / _state_of_the_code(root) / f"{name}-{_short([*content, *options])}"


def _export(checkpoint: Path, folder: Path, *options: str) -> None:
    """In this process, which has torch and transformers imported: another takes as long for them as for the export."""
    assert main([str(checkpoint), "--out", str(folder), "--verify-samples", "2", *options]) == 0


def _state_of_the_code(root: Path) -> str:
    """Of every file beside the code too (graphs, sample sentences), and of the libraries that export takes."""
    files = sorted(
        file
        for folder in CODE
        for file in (root / folder).rglob("*")
        if file.is_file() and file.suffix != ".pyc" and not any(file.is_relative_to(root / place) for place in NO_CODE)
    )
    wanted = (root / "requirements" / "export.txt").read_text(encoding="utf-8")
    libraries = ["onnxruntime", *re.findall(r"^[a-z][a-z0-9-]*", wanted, re.MULTILINE)]
    return _short(
        [
            *(f"{library} {version(library)}" for library in libraries),
            *(f"{file.relative_to(root)} {sha256(file)}" for file in files),
        ]
    )


def _short(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Only one process at a time is here with the same file."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _prune(packages: Path) -> None:
    folders = [path for path in packages.iterdir() if path.is_dir()]
    for folder in sorted(folders, key=lambda folder: folder.stat().st_mtime)[:-KEPT]:
        shutil.rmtree(folder)
