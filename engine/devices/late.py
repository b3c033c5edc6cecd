"""Sessions that few need: opened when they are first needed."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import onnxruntime as ort
from numpy.typing import NDArray

from engine.devices.session import Device, DeviceError, is_out_of_memory, open_session
from engine.errors import NotOffered
from models.package.checked import EXPORT_AGAIN, PackageError
from models.package.declared.graphs import GraphFile
from models.package.graph_files import GraphContents, GraphFiles

log = logging.getLogger(__name__)

Trial = Callable[[ort.InferenceSession], str | None]
"""Runs a graph, and says what is wrong with what it gives. None: nothing."""


class LateSession:
    """A graph of a package on a device. Used by many threads."""

    def __init__(
        self,
        graphs: GraphFiles,
        graph: GraphFile,
        device: Device,
        library: Path | None = None,
        trial: Trial | None = None,
    ) -> None:
        """Opens nothing yet.

        library: of its operators, where they are ours. trial: of a graph that steps run, which all requests share: none
        is to be the first that it fails for
        """
        self._graphs, self._graph, self._device, self._library = graphs, graph, device, library
        self._trial = trial
        self._session: ort.InferenceSession | None = None
        self._lock = Lock()

    def open(self, contents: GraphContents) -> None:
        """Opens it now. Raises PackageError, DeviceError."""
        session = open_session(contents.graph(self._graph.file), self._device, library=self._library)
        if self._trial is not None and (fault := _fault(session, self._trial)):
            raise PackageError(f"{self._graphs.folder / self._graph.file} {fault}: {EXPORT_AGAIN}")
        self._session = session

    def close(self) -> None:
        """Gives back what it has on the device."""
        self._session = None

    def get(self) -> ort.InferenceSession | None:
        """None: its files are not what the manifest says any more, or the device does not take it. The log says why."""
        with self._lock:
            if self._session is None:
                try:
                    self.open(self._graphs.contents())
                except (PackageError, DeviceError) as error:
                    log.error("%s cannot be used: %s", self._graph.file, error)
            return self._session

    def run(self, wish: str, names: Sequence[str], given: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """These outputs. Raises NotOffered where the graph cannot be used, or fails; the log says why.

        wish: what somebody wants of them, whose affair it is: the engine is well
        """
        if (session := self.get()) is None:
            raise NotOffered(wish)
        try:
            found: list[NDArray[Any]] = session.run(names, given)
        except Exception as error:  # the errors of ONNX Runtime have nothing else in common
            if is_out_of_memory(error):
                raise
            log.error("%s fails: %s", self._graph.file, error)
            raise NotOffered(wish) from error
        return found


def _fault(session: ort.InferenceSession, trial: Trial) -> str | None:
    """Of a graph."""
    try:
        return trial(session)
    except Exception as error:  # as above
        return f"does not run ({type(error).__name__}: {error})"
