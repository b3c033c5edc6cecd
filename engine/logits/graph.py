"""Whole rows of logits, by a graph of their own that is loaded when it is first needed."""

import logging
from threading import Lock

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from engine.decoder import Ask
from engine.devices.session import CPU, open_session
from engine.errors import NotOffered
from engine.logits.whole_rows import asks_logits, check_offered
from models.package import signature
from models.package.checked import PackageError
from models.package.graph_files import GraphContents, GraphFiles

log = logging.getLogger(__name__)


class LogitsGraph:
    """`Logits.graph` of a package. Used by many threads."""

    def __init__(self, graphs: GraphFiles) -> None:
        """Loads nothing yet."""
        self._spec, self._lock = graphs.spec, Lock()
        self._graphs = graphs
        self._file: str | None = None
        if graphs.spec.logits is not None and graphs.spec.logits.graph is not None:
            self._file = graphs.spec.logits.graph.file
        self._session: ort.InferenceSession | None = None
        self._ranks = np.arange(graphs.spec.most_candidates)
        self._of_screened = {"ranks": self._ranks[:1]} if graphs.spec.output_layer == "screened" else {}

    def check_offered(self, ask: Ask) -> None:
        """Raises NotOffered where the graphs do not give what is asked."""
        check_offered(ask, self._spec)
        if asks_logits(ask) and not self._load():
            raise NotOffered("log-probabilities of other tokens than the best")

    def load(self, contents: GraphContents) -> None:
        """Loads it now. There must be one. Raises PackageError."""
        assert self._file is not None
        self._session = open_session(contents.graph(self._file), CPU)

    def _load(self) -> bool:
        """Whether there is such a graph, and its files are still what the manifest says."""
        if self._file is None:
            return False
        with self._lock:
            try:
                if self._session is None:
                    self.load(self._graphs.contents())
            except PackageError as error:
                log.error("no whole rows of logits: %s", error)
                return False
        return True

    def run(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        """Hidden states [rows, width] -> logits [rows, vocabulary]."""
        assert self._session is not None and self._spec.logits is not None
        given = {signature.HIDDEN: hidden} | self._of_screened
        [logits] = self._session.run([self._spec.logits.name], given)
        found: NDArray[np.float32] = logits[:, : self._spec.vocabulary.target_size]
        return found

    def best(
        self, hidden: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]:
        """The `k` best tokens, their logits [rows, k], and normalisers [rows, 1], beside a screened decoder."""
        assert self._session is not None
        given = dict(zip(signature.LOGITS_INPUTS, (hidden, self._ranks[:k]), strict=True))
        ids, scores, normaliser = self._session.run(signature.LOGITS_OUTPUTS[:3], given)
        return ids, scores, normaliser
