"""The decoder on a device, by default a CUDA one: nothing but token ids and log-probabilities comes back to the host.

A search that asks for more (`engine.cuda.stepping.whole_rows`) pays for the way.

It also runs on the CPU provider, where all of it but CUDA itself is tested. To serve on a CPU, `engine.cpu.decoder` is
faster.
"""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Self
from weakref import WeakSet

from engine.cuda.cache import CudaCache
from engine.cuda.captured import open_captured
from engine.cuda.encoding.encoded import CudaSource, Encoder
from engine.cuda.encoding.encoder import CudaEncoder
from engine.cuda.encoding.packed_encoder import PackedEncoder
from engine.cuda.output import CudaOutput, most_allowed
from engine.cuda.runtime import DeviceRuntime
from engine.devices.session import DEVICE_KERNELS, Device, DeviceError, is_out_of_memory
from engine.errors import KernelsRefused
from engine.logits.target_graphs import TargetGraphs
from kernels.device_library import device_library
from kernels.library import LibraryError
from models.package.declared.graphs import GraphFile
from models.package.graph_files import GraphContents, GraphFiles
from models.package.signature import DEVICE_OPERATORS_VERSION


class CudaDecoder:
    """A model on a device. Used by one thread at a time, with as many caches as the device has room for."""

    def __init__(
        self,
        graphs: GraphFiles,
        source_capacity: int,
        target_capacity: int,
        device: Device,
        library: Path | None = None,
        packed_encoder: GraphFile | None = None,
    ) -> None:
        """Loads the graphs. Rows have room for so many source tokens and so many target tokens.

        library: of operators that the decoder graph has, which is a device step then. packed_encoder: the encoder of
        the same operators, if there is one. Raises DeviceError where a graph does not run on the device.
        """
        self.spec, self.device, self._library = graphs.spec, device, library
        self.source_capacity, self.target_capacity = source_capacity, target_capacity
        spec, shortlist, contents = graphs.spec, graphs.shortlist, graphs.contents()
        places = 0 if shortlist is None else most_allowed(shortlist, source_capacity, target_capacity)
        longest = max(source_capacity, target_capacity, places, 2)
        self.given_targets = TargetGraphs(graphs, device)
        self._caches: WeakSet[CudaCache] = WeakSet()
        with ExitStack() as held:
            self._runtime = runtime = held.enter_context(closing(DeviceRuntime(device, longest)))
            self._output = None
            if shortlist is not None and spec.output is not None:
                self._output = CudaOutput(runtime, contents.graph(spec.output.file), shortlist, spec, places)
            self._encoder = held.enter_context(closing(self._open_encoder(contents, packed_encoder)))
            assert spec.decoder is not None
            graph = contents.graph(spec.decoder.file)
            self._decoder, captured = open_captured(runtime, graph, library, "decoder steps")
            runtime.device = self.device = replace(device, cuda_graphs=captured)
            held.callback(self._forget)
            self._held = held.pop_all()

    @classmethod
    def open_step(cls, graphs: GraphFiles, source_capacity: int, target_capacity: int, device: Device) -> Self:
        """With the package's device step in place of its standard decoder, and its encoder for GPUs, if it has one.

        Raises KernelsRefused without a step.
        """
        step = graphs.spec.device_step
        if step is None:
            raise KernelsRefused("the package has no step for GPUs; export the checkpoint again")
        if step.operators > DEVICE_OPERATORS_VERSION:
            raise KernelsRefused(
                f"the package wants operators for GPUs of version {step.operators}, and these are of version "
                f"{DEVICE_OPERATORS_VERSION}: it needs a newer Dragoman"
            )
        spec = graphs.spec.model_copy(update={"decoder": step.decoder, "cache": step.cache})
        on_ours = replace(device, kernels=DEVICE_KERNELS, has_slots=True, steps_ahead=True)
        try:
            library = device_library(gpu=device.kind == "cuda")
            return cls(replace(graphs, spec=spec), source_capacity, target_capacity, on_ours, library, step.encoder)
        except LibraryError as error:
            raise KernelsRefused(str(error)) from error
        except Exception as error:  # the errors of ONNX Runtime have nothing else in common
            raise KernelsRefused(f"the step for GPUs does not load: {error}") from error

    @property
    def row_tokens(self) -> int:
        """Source and target tokens that a row has room for."""
        return self.source_capacity + self.target_capacity

    @property
    def gives_logits(self) -> bool:
        """Whether whole rows of scores can be asked for."""
        return self.spec.logits is not None

    def _open_encoder(self, contents: GraphContents, packed: GraphFile | None) -> Encoder:
        """That of our own operators, or the standard one."""
        if packed is not None and self._library is not None:
            graph = contents.graph(packed.file)
            return PackedEncoder(self._runtime, graph, self.spec, self.source_capacity, self._library)
        graph = contents.graph(self.spec.encoder.file)
        return CudaEncoder(self._runtime, graph, self.spec, self.source_capacity, self._output)

    def encode(self, sources: Sequence[Sequence[int]], named: Sequence[Sequence[int]] = ()) -> list[CudaSource]:
        """Runs the encoder on sources. named: see `Decoder`. Raises OutOfMemory."""
        return self._encoder.encode(sources, named)

    def close(self) -> None:
        """Gives back what it has on the device, when that is done with what it does: all sessions, then the stream.

        No cache of it may be used afterwards.
        """
        self._held.close()

    def _forget(self) -> None:
        """Drops the decoder's session, and what is bound to it."""
        self._runtime.transfers.settle()
        while self._caches:
            self._caches.pop().close()
        self.given_targets.close()
        self._decoder = self._output = None

    def open_cache(self, rows: int) -> CudaCache:
        """A running batch with room for so many rows. Raises DeviceError where the device has no memory for them."""
        capacities = self.source_capacity, self.target_capacity
        try:
            shared = self._runtime, self._decoder, self.spec
            cache = CudaCache(*shared, rows, *capacities, self._output, self._library)
        except Exception as error:  # the errors of ONNX Runtime have nothing else in common
            if is_out_of_memory(error):
                raise DeviceError(
                    f"the device has no memory for {rows} rows of {' + '.join(map(str, capacities))} tokens: lower "
                    "--max-rows, --max-source-tokens or --max-new-tokens"
                ) from error
            raise
        self._caches.add(cache)
        return cache
