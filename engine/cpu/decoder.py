"""The decoder on ONNX Runtime: two sessions, shared by all engines."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from engine.cpu.allowed import AllowedTokens, OutputLayer
from engine.cpu.cache import CpuCache
from engine.cpu.screened import WholeRows
from engine.cpu.source import CpuSource
from engine.devices.session import CPU, Device, open_session
from engine.devices.shapes import check_outputs, check_shapes
from engine.host.together import same_alone
from engine.logits.graph import LogitsGraph
from engine.logits.target_graphs import TargetGraphs
from kernels.library import Counters, Library
from models.package import derived
from models.package.graph_files import GraphFiles

log = logging.getLogger(__name__)

RUN_TOKENS = 512
"""Most tokens of an encoder run, but that a longer source runs alone: a run's memory grows with them, and ONNX Runtime
keeps it. More of them are not faster."""


class CpuDecoder:
    """A model on the CPU provider.

    One thread runs a step from beginning to end: engines, not kernels, share out the cores. The sessions are shared
    because weights that ONNX Runtime has repacked for its matrix products are then in memory, and in cache, once.
    """

    def __init__(
        self, graphs: GraphFiles, source_capacity: int, target_capacity: int, library: Library | None = None
    ) -> None:
        """Loads the graphs. Rows have room for so many source tokens and so many target tokens.

        library: of operators that are not ONNX Runtime's
        """
        self.spec, self._library = graphs.spec, library
        self.source_capacity, self.target_capacity = source_capacity, target_capacity
        contents, spec = graphs.contents(), graphs.spec
        assert spec.decoder is not None
        path = None if library is None else library.path
        self._encoder, self._decoder = (
            open_session(contents.graph(graph.file), CPU, library=path) for graph in (spec.encoder, spec.decoder)
        )
        check_shapes([self._encoder], spec, spec.cache, {spec.hidden: ("sentences", "source", "width")})
        check_shapes([self._decoder], spec, spec.cache)
        logits = None if spec.output_layer == "screened" else spec.logits
        besides = [output.name for output in (logits, spec.cross_query) if output is not None]
        check_outputs(self._decoder, [*besides, *([spec.cross_scores] if spec.cross_scores else [])])
        self._shortlist = graphs.shortlist
        size = graphs.spec.vocabulary.target_size
        self._output = None if spec.output is None else OutputLayer(contents.graph(spec.output.file), size)
        self.given_targets = TargetGraphs(graphs, CPU)
        self._logits, self._whole = None, None
        if spec.output_layer == "screened":
            self._logits = LogitsGraph(graphs)
            self._logits.load(contents)
            self._whole = WholeRows(self._logits)
        self._together = True
        self._together = same_alone(self._arrays, spec.vocabulary.source_size, source_capacity)
        if not self._together:  # it rests on kernels of ONNX Runtime that do not promise it
            log.warning("sources have other bits together than alone on this processor: each is encoded alone, slowly")

    @property
    def device(self) -> Device:
        """What it runs on."""
        return CPU if self._library is None else replace(CPU, kernels=self._library.isa)

    @property
    def row_tokens(self) -> int:
        """Source and target tokens that a row has room for."""
        return self.source_capacity + self.target_capacity

    @property
    def gives_logits(self) -> bool:
        """Whether whole rows of scores can be asked for."""
        return self.spec.logits is not None

    def encode(self, sources: Sequence[Sequence[int]], named: Sequence[Sequence[int]] = ()) -> list[CpuSource]:
        """Runs the encoder on sources, some of them together. named: see `Decoder`."""
        found: dict[int, CpuSource] = {}
        names = named or [()] * len(sources)
        lengths = [len(source) for source in sources]
        together = (
            runs(lengths, self.spec.encoder_pads) if self._together else ([index] for index in range(len(lengths)))
        )
        for run in together:
            encoded = self._encode([sources[index] for index in run], [names[index] for index in run])
            found |= zip(run, encoded, strict=True)
        return [found[index] for index in range(len(sources))]

    def open_cache(self, rows: int) -> CpuCache:
        """A running batch with room for so many rows."""
        allowed = None if self._output is None else AllowedTokens(self._output, rows)
        capacities = self.source_capacity, self.target_capacity
        return CpuCache(self._decoder, self.spec, rows, *capacities, allowed, self._logits, self._whole)

    @property
    def counters(self) -> Callable[[], Counters] | None:
        """What reads how many rows of the output layer were computed whole, where it is screened."""
        return None if self._whole is None else self._whole.counters

    def close(self) -> None:
        """Nothing outlives it."""

    def _arrays(self, sources: Sequence[Sequence[int]]) -> list[list[NDArray[np.floating]]]:
        """All that the encoder gives of every source."""
        return [[source.hidden(), *source.encoded.values()] for source in self.encode(sources)]

    def _encode(self, sources: Sequence[Sequence[int]], named: Sequence[Sequence[int]]) -> Iterator[CpuSource]:
        """Runs the encoder once."""
        lengths = np.array([len(source) for source in sources], np.int32)
        ids = np.zeros((len(sources), lengths.max()), np.int64)
        for row, source in zip(ids, sources, strict=True):
            row[: len(source)] = source
        names = derived.encoder_outputs(self.spec)
        hidden, *encoded = self._encoder.run(names, {"ids": ids, "lengths": lengths})
        for index, (source, tokens) in enumerate(zip(sources, named, strict=True)):
            one, own = slice(index, index + 1), slice(len(source))
            allowed = None if self._shortlist is None else self._shortlist.allowed(source, tokens)
            # A state is [sentences, width], what grows [sentences, heads, source, head_dim].
            of_one = {name: tensor[one] for name, tensor in zip(names[1:], encoded, strict=True)}
            starts = {name: tensor if tensor.ndim == 2 else tensor[:, :, own] for name, tensor in of_one.items()}
            yield CpuSource(hidden[one, own], starts, allowed)


def runs(lengths: Sequence[int], pads: bool) -> Iterator[list[int]]:
    """Sources that are encoded together: of one length, unless padding changes none of their bits.

    It would change the order in which attention sums.
    """
    run = list[int]()
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        length = lengths[index]
        if run and (length * (len(run) + 1) > RUN_TOKENS or not (pads or length == lengths[run[0]])):
            yield run
            run = []
        run.append(index)
    if run:
        yield run
