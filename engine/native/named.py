"""Logits of tokens by name, by a graph of one operator that is loaded when it is first needed."""

import numpy as np
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
        self._session = None if native.named is None else LateSession(graphs, native.named, CPU, library.path)

    def offered(self) -> bool:
        """Whether there is one. Where there is none, whole rows tell the same."""
        return self._session is not None and self._session.get() is not None

    def run(self, hidden: NDArray[np.float32], token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Hidden states [rows, width], tokens [rows, named] -> logits [rows, named]; -inf where a token is negative."""
        session = None if self._session is None else self._session.get()
        assert session is not None, "what is not offered was asked for"
        [logits] = session.run([signature.LOGITS], {signature.HIDDEN: hidden, signature.NAMED_TOKENS: token_ids})
        found: NDArray[np.float32] = logits
        return found
