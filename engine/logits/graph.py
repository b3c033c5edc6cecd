"""Whole rows of logits, by a graph of their own that is loaded when it is first needed."""

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from engine.decoder import Ask
from engine.devices.late import LateSession
from engine.devices.session import CPU
from engine.errors import NotOffered
from engine.logits.whole_rows import asks_logits, check_offered
from models.package import signature
from models.package.graph_files import GraphContents, GraphFiles


class LogitsGraph:
    """`Logits.graph` of a package. Used by many threads."""

    def __init__(self, graphs: GraphFiles) -> None:
        """Loads nothing yet."""
        self._spec = graphs.spec
        logits = graphs.spec.logits
        self._session = None
        if logits is not None and logits.graph is not None:
            self._session = LateSession(graphs, logits.graph, CPU, trial=self._fault)
        self._ranks = np.arange(graphs.spec.most_candidates)
        self._screened = graphs.spec.output_layer == "screened"

    def check_offered(self, ask: Ask) -> None:
        """Raises NotOffered where the graphs do not give what is asked."""
        check_offered(ask, self._spec)
        if asks_logits(ask) and (self._session is None or self._session.get() is None):
            raise NotOffered("log-probabilities of other tokens than the best")

    def load(self, contents: GraphContents) -> None:
        """Loads it now. There must be one. Raises PackageError."""
        assert self._session is not None
        self._session.open(contents)

    def run(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        """Hidden states [rows, width] -> logits [rows, vocabulary]."""
        return self._logits(self._opened(), hidden)

    def best(
        self, hidden: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]:
        """The `k` best tokens, their logits [rows, k], and normalisers [rows, 1], beside a screened decoder."""
        return self._best(self._opened(), hidden, k)

    def _opened(self) -> ort.InferenceSession:
        session = None if self._session is None else self._session.get()
        assert session is not None, "what is not offered was asked for"
        return session

    def _logits(self, session: ort.InferenceSession, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        assert self._spec.logits is not None
        given = {signature.HIDDEN: hidden} | ({"ranks": self._ranks[:1]} if self._screened else {})
        [logits] = session.run([self._spec.logits.name], given)
        found: NDArray[np.float32] = logits[:, : self._spec.vocabulary.target_size]
        return found

    def _best(
        self, session: ort.InferenceSession, hidden: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]:
        given = dict(zip(signature.LOGITS_INPUTS, (hidden, self._ranks[:k]), strict=True))
        ids, scores, normaliser = session.run(signature.LOGITS_OUTPUTS[:3], given)
        return ids, scores, normaliser

    def _fault(self, session: ort.InferenceSession) -> str | None:
        hidden, size = np.zeros((1, self._spec.width), np.float32), self._spec.vocabulary.target_size
        if (shape := self._logits(session, hidden).shape) != (1, size):
            return f"gives logits of the shape {list(shape)} for one row; there are {size} target tokens"
        if self._screened and (shapes := [one.shape for one in self._best(session, hidden, 1)]) != [(1, 1)] * 3:
            return f"gives tensors of the shapes {', '.join(str(list(one)) for one in shapes)} for one row's best token"
        return None
