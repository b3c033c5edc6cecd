"""The engine in this process, loaded when the first text needs it."""

import hashlib
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from dragoman.bulk.errors import BulkError, WrongUsage
from dragoman.errors import FailedPrecondition
from dragoman.wire.messages import TranslationOptions

if TYPE_CHECKING:
    from dragoman.local import Translator

MANIFEST = "manifest.json"
"""Of a package; it lists the SHA-256 of all other files, and so its own is that of the package."""
ONE_CALL_S = 24 * 60 * 60.0
"""A call of some texts has no deadline that anybody waits for, and clients want one."""
SWITCH_INTERVAL_S = 0.0005
"""As in a server: how long an engine's thread waits for the interpreter while Python code runs."""
MORE_THREADS = 2
"""Than cores. Each brings as many texts as a worker has rows."""
ALWAYS_FIT = 7
"""Threads that an engine has room for whatever it runs on: 896 texts of one caller may wait, 128 of each."""
ROWS = 128
"""Of a worker's batch: twice a server's, since nobody waits for a step, and 5 % less of a processor's time."""


def package_hashes(packages: Sequence[Path]) -> list[str]:
    """The SHA-256 of each package, or of each of a folder of them. Raises WrongUsage."""
    return [hash for path in packages for hash in _hashes(path)]


def _hashes(path: Path) -> Iterator[str]:
    manifests = [path / MANIFEST] if (path / MANIFEST).exists() else sorted(path.glob(f"[!.]*/{MANIFEST}"))
    if not manifests:
        raise WrongUsage(f"{path} is no package, and has none: there is no {MANIFEST}")
    for manifest in manifests:
        yield hashlib.sha256(manifest.read_bytes()).hexdigest()


class Engine:
    """Translates for several threads. Close it at the end: use it as a context manager."""

    def __init__(
        self,
        packages: Sequence[Path],
        options: TranslationOptions,
        device: Literal["cpu", "cuda", "auto"],
        workers: int | None,
    ) -> None:
        """`options`: of all texts. workers: None is one for every core. Raises WrongUsage."""
        self.hashes = package_hashes(packages)
        self.threads = MORE_THREADS + (workers or _cores())
        """That it takes to keep it busy, at most: how many workers it has is known when it is loaded."""
        # Nothing is asked for twice here: who runs it knows equal texts, and what was translated before.
        self._options: TranslationOptions = {**options, "no_cache": True}
        self._packages, self._device, self._workers = packages, device, workers
        self._translator: Translator | None = None
        self._turns = threading.Semaphore(self.threads)
        """Of the threads: texts that the engine has no room for would be refused, and come back when it has waited."""
        self._closed, self._lock = False, threading.Lock()
        check_repeatable(options, options.get("do_sample"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        with self._lock:  # what is being loaded cannot be left
            if self._translator is not None:
                self._translator.close()

    def translate(self, texts: list[str]) -> list[str]:
        """The best translation of each. Raises DragomanError, or WrongUsage or BulkError where it cannot be loaded."""
        with self._lock:
            if self._translator is None and not self._closed:
                self._translator = self._load()
        with self._turns:
            if self._translator is None or self._closed:
                raise BulkError("the run has ended")
            found = self._translator.translate(texts, timeout_s=ONE_CALL_S, **self._options)
        return [one.text for one in found]

    def _load(self) -> "Translator":
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        try:
            from dragoman.local import Translator  # not before: the client alone has no engine
        except ModuleNotFoundError as error:
            raise BulkError(str(error)) from error
        try:
            translator = Translator(self._packages, device=self._device, workers=self._workers, max_rows=ROWS)
        except FailedPrecondition:  # the memory is too small for so many, or it is something else, which is told then
            try:
                translator = Translator(self._packages, device=self._device, workers=self._workers)
            except FailedPrecondition as error:
                raise WrongUsage(error.message) from error
        models = translator.models()
        if [model.package_sha256 for model in models] != self.hashes:
            raise BulkError("a package has changed since the run began: run the same command again")
        check_repeatable(self._options, any(model.default_decoding.do_sample for model in models))
        workers = max(model.workers for model in models)
        self._turns = threading.Semaphore(min(self.threads, max(MORE_THREADS + workers, ALWAYS_FIT)))
        return translator


def _cores() -> int:
    """Of which an engine has a worker each, or fewer: the quota of a container is known to it alone."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_repeatable(options: TranslationOptions, samples: bool | None) -> None:
    """Raises WrongUsage: a run that is gone on with, or a text that comes twice, must have the same translation."""
    if samples and options.get("do_sample") is not False and options.get("seed") is None:
        raise WrongUsage("--do-sample needs --seed here: a run that is gone on with must draw the same tokens again")
