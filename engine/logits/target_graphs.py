"""What teacher-forced passes say of given targets: how probable their tokens are, and where each looks."""

from collections.abc import Iterator, Sequence

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from engine.devices.late import LateSession
from engine.devices.session import Device
from engine.errors import NotOffered
from engine.links import Looked, ReadOn, coverage, links, look, look_within
from models.decoding import Decoding
from models.package import signature
from models.package.graph_files import GraphContents, GraphFiles

PASS_TOKENS = 256
"""Most target tokens of a pass, padding included, but that a longer target has one of its own."""
OUTPUT_TOKENS = 64
"""Most tokens whose next one is looked up at once: each has a number for every token of the vocabulary, and more of
them leave the second-level cache."""
SCORES, ATTENTION, STATES = "the score of a given target", "attention", "the states of a given target"
"""What is wished of the graphs."""

Shape = tuple[int, ...]


class TargetGraphs:
    """The graphs of a package that look at given targets, if it has them. Loads them when they are first used.

    Used by many threads.
    """

    def __init__(self, graphs: GraphFiles, device: Device) -> None:
        """Loads nothing yet."""
        spec, scoring = graphs.spec, graphs.spec.scoring
        self._width, self._pass, self._output = spec.width, None, None
        if scoring is not None:
            self._pass = LateSession(graphs, scoring.target, device, trial=self._fault_of_pass)
            self._output = LateSession(graphs, scoring.log_probs, device, trial=self._fault_of_output)
        self._alone, self._source = spec.encoder_attention, None
        if (of_source := spec.source_attention if self._alone is None else spec.encoder) is not None:
            self._source = LateSession(graphs, of_source, device, trial=self._fault_of_source)
        self._attention, self._aligner, self._reads_on = spec.target_attention, spec.aligner, spec.reads_on

    @property
    def scores(self) -> bool:
        """Whether given targets can be scored."""
        return self._output is not None

    @property
    def aligns(self) -> bool:
        """Whether it can be told which source token a target token comes from."""
        return self._aligner is not None

    @property
    def covers(self) -> bool:
        """Whether it can be told how much of a source a target leaves out."""
        return self._attention is not None

    @property
    def attends(self) -> bool:
        """Whether it can be told where every head looks, in a source too."""
        return self._attention is not None and self._source is not None

    def load(self, contents: GraphContents) -> None:
        """Loads the graphs now. Raises PackageError, DeviceError."""
        for session in self._sessions:
            session.open(contents)

    def score(
        self, hidden: NDArray[np.float32], prefix: Sequence[int], targets: Sequence[Sequence[int]]
    ) -> Iterator[dict[int, NDArray[np.float32]]]:
        """By the target's index, of each of its tokens the log-probability after those before it, fp32 [tokens].

        Yields what it has found every OUTPUT_TOKENS or so, so that others need not wait long.

        hidden: of the one source of all the targets [source tokens, width]
        prefix: what is fed before a target's first token: the start token, and perhaps more
        Raises NotOffered where the package has no such graphs, or they fail.
        """
        if self._pass is None or self._output is None:
            raise NotOffered(SCORES)
        for indices in together([len(prefix) + len(target) - 1 for target in targets]):
            given = [targets[index] for index in indices]
            feeds = _feeds(hidden, [[*prefix, *target] for target in given])
            [states] = self._pass.run(SCORES, [signature.STATES], feeds)
            lengths = [len(target) for target in given]
            first = len(prefix) - 1
            of_tokens = np.concatenate([row[first : first + n] for row, n in zip(states, lengths, strict=True)])
            wanted, found = np.concatenate(given), np.empty(len(of_tokens), np.float32)
            for start in range(0, len(found), OUTPUT_TOKENS):
                part = slice(start, start + OUTPUT_TOKENS)
                feeds = dict(zip(signature.LOG_PROBS_INPUTS, (of_tokens[part], wanted[part]), strict=True))
                [found[part]] = self._output.run(SCORES, [signature.LOG_PROBS], feeds)
                if part.stop < len(found):
                    yield {}
            yield dict(zip(indices, np.split(found, np.cumsum(lengths)[:-1]), strict=True))

    def look(
        self,
        hidden: NDArray[np.float32],
        prefix: Sequence[int],
        targets: Sequence[Sequence[int]],
        decoding: Decoding,
    ) -> Iterator[dict[int, Looked]]:
        """By the target's index, where each of its tokens looks. Yields after every pass.

        hidden, prefix: as for `score`. decoding: says what is wanted of it
        Raises NotOffered where the package does not tell, or its graph fails.
        """
        outputs = self._attention
        if self._pass is None or outputs is None:
            raise NotOffered(ATTENTION)
        wanted = self._layers(decoding, len(outputs.queries))
        names = [*(outputs.queries[layer] for layer in wanted), *(outputs.keys[layer] for layer in wanted)]
        for indices in together([len(prefix) + len(target) - 1 for target in targets]):
            feeds = _feeds(hidden, [[*prefix, *targets[index]] for index in indices])
            found = self._pass.run(ATTENTION, names, feeds)
            queries, keys = found[: len(wanted)], found[len(wanted) :]
            looked = dict[int, Looked]()
            for row, index in enumerate(indices):
                fed = slice(len(prefix) + len(targets[index]) - 1)
                layers = {
                    layer: look(query[row, fed], key[0], outputs.scale)
                    for layer, query, key in zip(wanted, queries, keys, strict=True)
                }
                looked[index] = self._looked(layers, len(prefix) - 1, decoding)
            yield looked

    def source_attention(self, source_ids: Sequence[int]) -> NDArray[np.float32]:
        """Where the tokens of a source look in it, of every layer and head [layers, heads, source, source].

        Raises NotOffered where the package does not tell, or its graph fails.
        """
        if self._source is None:
            raise NotOffered(ATTENTION)
        feeds = _reads(source_ids)
        if self._alone is not None:
            return look_within(self._source.run(ATTENTION, self._alone.outputs, feeds), self._alone)
        [found] = self._source.run(ATTENTION, [signature.ATTENTION], feeds)
        attention: NDArray[np.float32] = found[0]
        return attention

    def look_back(
        self, hidden: NDArray[np.float32], prefix: Sequence[int], target: Sequence[int]
    ) -> NDArray[np.float32] | None:
        """Where what is fed for a target looks in itself, of every layer and head [layers, heads, fed, fed].

        hidden, prefix: as for `score`. None: the package does not tell, or its layers have recurrences. Raises
        NotOffered where its graph fails.
        """
        if self._pass is None or self._attention is None or self._attention.within is None:
            return None
        within = self._attention.within
        return look_within(self._pass.run(ATTENTION, within.outputs, _feeds(hidden, [[*prefix, *target]])), within)

    def states(
        self, hidden: NDArray[np.float32], prefix: Sequence[int], target: Sequence[int]
    ) -> NDArray[np.float32] | None:
        """What is fed for a target after the last layer [fed, width].

        hidden, prefix: as for `score`. None: the package does not tell. Raises NotOffered where its graph fails.
        """
        if self._pass is None:
            return None
        [found] = self._pass.run(STATES, [signature.STATES], _feeds(hidden, [[*prefix, *target]]))
        states: NDArray[np.float32] = found[0]
        return states

    def read_on(self, source_ids: Sequence[int], fed_ids: Sequence[int]) -> ReadOn | None:
        """What one stack finds in a source and what is fed behind its last token.

        None: the package does not tell, or its model is no stack. Raises NotOffered where its graph fails.
        """
        if self._source is None or not self._reads_on:
            return None
        feeds = _reads(source_ids, fed_ids)
        attention, states = self._source.run(ATTENTION, list(signature.STACK_ATTENTION_OUTPUTS), feeds)
        return ReadOn(attention[0], states[0])

    def close(self) -> None:
        """Gives back what the graphs have on the device."""
        for session in self._sessions:
            session.close()

    def _layers(self, decoding: Decoding, layers: int) -> Sequence[int]:
        """Those of so many that are looked at."""
        if decoding.with_attention:
            return range(layers)
        of_links = {self._aligner.layer} if decoding.with_alignment and self._aligner is not None else set()
        return sorted(of_links | ({layers - 1} if decoding.coverage_penalty else set()))

    def _looked(self, layers: dict[int, NDArray[np.float32]], first: int, decoding: Decoding) -> Looked:
        """What is told of a target.

        layers: their attention [heads, fed tokens, source]. first: the one that chooses the target's first token
        """
        aligner, of_target = self._aligner, {layer: weights[:, first:] for layer, weights in layers.items()}
        return Looked(
            links(of_target[aligner.layer][list(aligner.heads)].mean(0)) if aligner and decoding.with_alignment else (),
            coverage(layers[max(layers)].mean(0)) if decoding.coverage_penalty else 0.0,
            np.stack(list(of_target.values())) if decoding.with_attention else None,
        )

    def _fault_of_pass(self, session: ort.InferenceSession) -> str | None:
        """Of two tokens that are fed for a target, beside a source of three."""
        feeds = _feeds(np.zeros((3, self._width), np.float32), [(0, 0, 0)])
        [states] = session.run([signature.STATES], feeds)
        shapes: list[tuple[Shape, Shape]] = [(states.shape, (1, 2, self._width))]
        if (told := self._attention) is not None:
            found = session.run([*told.queries, *told.keys], feeds)
            queries, keys = found[: len(told.queries)], found[len(told.queries) :]
            looked = [look(query[0], key[0], told.scale) for query, key in zip(queries, keys, strict=True)]
            shapes += [(weights.shape, (told.heads, 2, 3)) for weights in looked]
            if (within := told.within) is not None:
                weights = look_within(session.run(within.outputs, feeds), within)
                shapes.append((weights.shape, (len(within.layers), within.heads, 2, 2)))
        return _other_shapes(shapes)

    def _fault_of_source(self, session: ort.InferenceSession) -> str | None:
        """Of three tokens."""
        feeds = _reads((0, 0, 0))
        if (alone := self._alone) is not None:
            found = look_within(session.run(alone.outputs, feeds), alone)
            return _other_shapes([(found.shape, (len(alone.layers), alone.heads, 3, 3))])
        [found] = session.run([signature.ATTENTION], feeds)
        return _other_shapes([(found.shape, (1, *found.shape[1:3], 3, 3))])

    def _fault_of_output(self, session: ort.InferenceSession) -> str | None:
        """Of two tokens."""
        given = np.zeros((2, self._width), np.float32), np.zeros(2, np.int64)
        [found] = session.run([signature.LOG_PROBS], dict(zip(signature.LOG_PROBS_INPUTS, given, strict=True)))
        return _other_shapes([(found.shape, (2,))])

    @property
    def _sessions(self) -> list[LateSession]:
        return [session for session in (self._pass, self._output, self._source) if session is not None]


def _other_shapes(shapes: Sequence[tuple[Shape, Shape]]) -> str | None:
    """What is wrong with the first of these shapes that is not as it must be, which is beside it."""
    return next((f"comes to {list(found)}, and must to {list(must)}" for found, must in shapes if found != must), None)


def _reads(source_ids: Sequence[int], fed_ids: Sequence[int] = ()) -> dict[str, NDArray[np.generic]]:
    """Of a source and, to one stack, what is fed behind it."""
    ids, lengths = np.array([[*source_ids, *fed_ids]], np.int64), np.array([len(source_ids)], np.int32)
    return dict(zip(signature.ENCODER_INPUTS, (ids, lengths), strict=True))


def _feeds(hidden: NDArray[np.float32], targets: Sequence[Sequence[int]]) -> dict[str, NDArray[np.generic]]:
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
