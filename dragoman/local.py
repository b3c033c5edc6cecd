"""The engine in this process, with the methods of the client: for notebooks, tests and bulk. No server and no port.

    with Translator("artifacts/en-pt") as translator:
        print(translator.translate("How are you?", num_beams=4).text)

It needs what a server needs, in a checkout of Dragoman.
"""

import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, cast

import grpc

from dragoman.client import Client
from dragoman.errors import FailedPrecondition
from dragoman.methods import Methods

try:
    from server.config import ConfigError
    from server.local.engine import LocalEngine, settings_of
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"dragoman.local runs the engine in this process, and {error.name} is not installed here: in a checkout of "
        "Dragoman, `make setup`, or `pip install -e '.[cpu]'` (for a GPU '.[cuda]')",
        name=error.name,
    ) from error


class Translator(Client):
    """A `Client` of models that this process runs itself. May be shared between threads.

    Answers, options and errors are those of a server with the same packages. Close it, or the models stay loaded until
    it is collected. A process that was forked from this one has no engine: make a translator in each.
    """

    def __init__(
        self,
        package: str | Path | Sequence[str | Path],
        *,
        device: Literal["cpu", "cuda", "auto"] = "cpu",
        kernels: Literal["auto", "off", "required"] = "auto",
        workers: int | None = None,
        max_rows: int | None = None,
        memory_mb: int | None = None,
    ) -> None:
        """Loads the model of a package, or those of several: the first is the default one.

        The rest are settings of the server: see docs/configuration.md. Raises TypeError where `package` is no folder
        and no sequence of some, and FailedPrecondition for a package, a setting or a device that cannot be used.
        """
        packages = [package] if isinstance(package, str | Path) or not isinstance(package, Iterable) else list(package)
        if not packages or not all(isinstance(one, str | Path) for one in packages):
            raise TypeError(f"package is {package!r}; it must be the folder of a package, or several of them")
        try:
            settings = settings_of(list(map(Path, packages)), device, kernels, workers, max_rows, memory_mb)
            engine = LocalEngine(settings)
        except ConfigError as error:
            raise FailedPrecondition(str(error), grpc.StatusCode.FAILED_PRECONDITION) from error
        # A channel as far as stubs and clients take one. It is here, or never will be.
        self._call([Methods(cast(grpc.Channel, engine.channel))], wait_for_ready=False)
        weakref.finalize(self, engine.leave).atexit = False
