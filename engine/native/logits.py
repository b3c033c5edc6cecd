"""Whole rows of logits, by a graph of their own that is loaded when somebody first asks for them."""

from pathlib import Path
from threading import Lock

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from engine.decoder import Ask
from engine.devices.session import CPU, open_session
from engine.errors import NotOffered
from engine.whole_rows import asks_logits, check_offered
from models.package import signature
from models.package.graph_files import GraphFiles


class LogitsGraph:
    """`Logits.graph` of a package. Used by many threads."""

    def __init__(self, graphs: GraphFiles) -> None:
        """Loads nothing yet."""
        self._spec, self._lock = graphs.spec, Lock()
        self._file: Path | None = None
        if graphs.spec.logits is not None and graphs.spec.logits.graph is not None:
            self._file = graphs.folder / graphs.spec.logits.graph.file
        self._session: ort.InferenceSession | None = None

    def check_offered(self, ask: Ask) -> None:
        """Raises NotOffered where the graphs do not give what is asked."""
        check_offered(ask, self._spec)
        if asks_logits(ask) and self._file is None:
            raise NotOffered("log-probabilities of other tokens than the best")

    def run(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        """Hidden states [rows, width] -> logits [rows, vocabulary]."""
        assert self._file is not None and self._spec.logits is not None
        with self._lock:
            if self._session is None:
                self._session = open_session(self._file, CPU)
        [logits] = self._session.run([self._spec.logits.name], {signature.HIDDEN: hidden})
        found: NDArray[np.float32] = logits[:, : self._spec.vocabulary.target_size]
        return found
