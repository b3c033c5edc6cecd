"""How probable given targets are: a teacher-forced pass over all their tokens at once, by graphs of their own."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from engine.devices.late import LateSession
from engine.devices.session import Device
from engine.errors import NotOffered
from models.package import signature
from models.package.graph_files import GraphContents, GraphFiles

PASS_TOKENS = 256
"""Most target tokens of a pass, padding included, but that a longer target has one of its own."""
OUTPUT_TOKENS = 64
"""Most tokens whose next one is looked up at once: each has a number for every token of the vocabulary, and more of
them leave the second-level cache."""


class Scorer:
    """The graphs of a package that score targets, if it has them. Loads them when they are first used.

    Used by many threads.
    """

    def __init__(self, graphs: GraphFiles, device: Device) -> None:
        """Loads nothing yet."""
        scoring = graphs.spec.scoring
        self._sessions = [LateSession(graphs, graph, device) for graph in (() if scoring is None else scoring.files)]

    @property
    def there(self) -> bool:
        """Whether the package has the graphs."""
        return bool(self._sessions)

    def load(self, contents: GraphContents) -> None:
        """Loads them now. Raises PackageError, DeviceError."""
        for session in self._sessions:
            session.open(contents)

    def score(
        self, hidden: NDArray[np.float32], prefix: Sequence[int], targets: Sequence[Sequence[int]]
    ) -> Iterator[dict[int, NDArray[np.float32]]]:
        """By the target's index, of each of its tokens the log-probability after those before it, fp32 [tokens].

        Yields what it has found every OUTPUT_TOKENS or so, so that others need not wait long.

        hidden: of the one source of all the targets [source tokens, width]
        prefix: what is fed before a target's first token: the start token, and perhaps more
        Raises NotOffered where the package has no such graphs.
        """
        sessions = [session for late in self._sessions if (session := late.get()) is not None]
        if len(sessions) < 2:
            raise NotOffered("the score of a given target")
        pass_, output = sessions
        for indices in together([len(prefix) + len(target) - 1 for target in targets]):
            given = [targets[index] for index in indices]
            feeds = self._feeds(hidden, [[*prefix, *target] for target in given])
            [states] = pass_.run([signature.STATES], feeds)
            lengths = [len(target) for target in given]
            first = len(prefix) - 1
            of_tokens = np.concatenate([row[first : first + n] for row, n in zip(states, lengths, strict=True)])
            wanted, found = np.concatenate(given), np.empty(len(of_tokens), np.float32)
            for start in range(0, len(found), OUTPUT_TOKENS):
                part = slice(start, start + OUTPUT_TOKENS)
                feeds = dict(zip(signature.LOG_PROBS_INPUTS, (of_tokens[part], wanted[part]), strict=True))
                [found[part]] = output.run([signature.LOG_PROBS], feeds)
                if part.stop < len(found):
                    yield {}
            yield dict(zip(indices, np.split(found, np.cumsum(lengths)[:-1]), strict=True))

    def close(self) -> None:
        """Gives back what the graphs have on the device."""
        for session in self._sessions:
            session.close()

    def _feeds(self, hidden: NDArray[np.float32], targets: Sequence[Sequence[int]]) -> dict[str, NDArray[np.generic]]:
        """targets: with their prefixes."""
        # What fills up a row follows all of its tokens, and none of them sees it.
        ids = np.zeros((len(targets), max(map(len, targets)) - 1), np.int64)
        for row, target in enumerate(targets):
            ids[row, : len(target) - 1] = target[:-1]
        lengths, sources = np.array([len(hidden)], np.int32), np.zeros(len(targets), np.int64)
        return dict(zip(signature.TARGET_INPUTS, (hidden[None], lengths, sources, ids), strict=True))


def together(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Which targets have a pass together, those of like length: their indices."""
    run = list[int]()
    for index in sorted(range(len(lengths)), key=lambda index: lengths[index]):
        if run and (len(run) + 1) * lengths[index] > PASS_TOKENS:
            yield run
            run = []
        run.append(index)
    if run:
        yield run
