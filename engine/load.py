"""THE one way from a package to a running engine."""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from engine.cpu.decoder import CpuDecoder
from engine.cuda.decoder import CudaDecoder
from engine.decoder import Decoder
from engine.devices.machine import usable_cores
from engine.devices.session import Device, DeviceError
from engine.observer import Observer, Unobserved
from engine.runner import Runner
from engine.targets import TargetRules, target_rules
from models.package.folder import Package
from models.package.graph_files import GraphFiles
from models.package.graphs import Precisions
from models.package.manifest import GenerationDefaults


@dataclass(frozen=True, slots=True)
class Loadable:
    """What an engine needs of a model: a package has it, and so has what export and training have just traced."""

    graphs: GraphFiles
    generation: GenerationDefaults

    @classmethod
    def of(cls, package: Package) -> "Loadable":
        """Raises PackageError."""
        return cls(package.graphs(), package.manifest.generation)

    @property
    def rules(self) -> TargetRules:
        """What holds for every target."""
        return target_rules(self.graphs.spec.vocabulary, self.generation)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much an engine takes on. None: as much as the model or the machine has."""

    rows: int = 64
    """Of each worker's running batch."""
    workers: int | None = None
    source_tokens: int | None = None
    target_tokens: int | None = None


def load(model: Loadable, device: Device, limits: Limits, observer: Observer | None = None) -> Runner:
    """Loads a model on a device. It runs inside the context of what is returned.

    Raises DeviceError where a graph does not run on the device, or the device has no room.
    """
    workers = worker_count(model.graphs.spec.precision, device, limits.workers)
    with ExitStack() as undo:
        decoder = open_decoder(model, device, limits.source_tokens, limits.target_tokens)
        undo.callback(decoder.close)
        runner = Runner(decoder, limits.rows, workers, observer or Unobserved(), owns_decoder=True)
        undo.pop_all()
    return runner


def open_decoder(
    model: Loadable, device: Device, source_tokens: int | None = None, target_tokens: int | None = None
) -> Decoder[Any]:
    """The decoder that runs a model on a device, with rows of so many tokens. Raises DeviceError."""
    graphs, most = model.graphs, model.graphs.spec.max_positions
    capacities = source_tokens or most, target_tokens or most
    if takes_threads(graphs.spec.precision, device):
        return CpuDecoder(graphs, *capacities)
    return CudaDecoder(graphs, *capacities, device)


def takes_threads(precision: Precisions, device: Device) -> bool:
    """Whether many threads at once run a model: fp32 on the CPU."""
    return device.kind == "cpu" and precision.activations == precision.cache == "fp32"


def worker_count(precision: Precisions, device: Device, wanted: int | None) -> int:
    """How many workers there are to be: one for every core, or one where one thread drives the device.

    Raises DeviceError where more are wanted.
    """
    if takes_threads(precision, device):
        return wanted or usable_cores()
    if wanted not in (None, 1):
        what = "a CUDA device" if device.kind == "cuda" else f"a package of precision {precision.activations}"
        raise DeviceError(f"workers is {wanted}; {what} takes 1, with one running batch: raise max_rows")
    return 1
