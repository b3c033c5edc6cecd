"""Logits of tokens by name, by a graph of one operator that is loaded when it is first needed."""

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from engine.devices.late import LateSession
from engine.devices.session import CPU
from kernels.library import Library
from models.package import signature
from models.package.declared.graphs import NativeGraphs
from models.package.graph_files import GraphFiles


class NamedTokens:
    """`NativeGraphs.named` of a package. Used by many threads."""

    def __init__(self, graphs: GraphFiles, native: NativeGraphs, library: Library) -> None:
        """Loads nothing yet."""
        self._width, self._session = graphs.spec.width, None
        if native.named is not None:
            self._session = LateSession(graphs, native.named, CPU, library.path, self._fault)

    def offered(self) -> bool:
        """Whether there is one. Where there is none, whole rows tell the same."""
        return self._session is not None and self._session.get() is not None

    def run(self, hidden: NDArray[np.float32], token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Hidden states [rows, width], tokens [rows, named] -> logits [rows, named]; -inf where a token is negative."""
        session = None if self._session is None else self._session.get()
        assert session is not None, "what is not offered was asked for"
        return _logits(session, hidden, token_ids)

    def _fault(self, session: ort.InferenceSession) -> str | None:
        found = _logits(session, np.zeros((1, self._width), np.float32), np.array([[0, -1]]))
        return (
            None
            if found.shape == (1, 2)
            else f"gives logits of the shape {list(found.shape)} for two tokens of one row"
        )


def _logits(
    session: ort.InferenceSession, hidden: NDArray[np.float32], token_ids: NDArray[np.int64]
) -> NDArray[np.float32]:
    [logits] = session.run([signature.LOGITS], {signature.HIDDEN: hidden, signature.NAMED_TOKENS: token_ids})
    found: NDArray[np.float32] = logits
    return found
