"""THE one way from a package to a running engine."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.cpu.decoder import CpuDecoder
from engine.cuda.decoder import CudaDecoder
from engine.decoder import Decoder
from engine.devices.machine import usable_cores
from engine.devices.session import Device, DeviceError
from engine.observer import Observer, Unobserved
from engine.runner import Runner
from engine.targets import TargetRules, target_rules
from models.config import ModelConfig
from models.package.folder import Package
from models.package.manifest import GenerationDefaults
from models.package.shortlist import ShortlistedOutput


@dataclass(frozen=True, slots=True)
class Loadable:
    """What an engine needs of a model: a package has it, and so has what export and training have just traced."""

    encoder: Path
    decoder: Path
    config: ModelConfig
    generation: GenerationDefaults
    precision: str = "fp32"
    choice: ShortlistedOutput | None = None
    """With a shortlist."""

    @classmethod
    def of(cls, package: Package) -> "Loadable":
        """Raises PackageError."""
        manifest = package.manifest
        return cls(
            package.encoder_graph,
            package.decoder_graph,
            manifest.model,
            manifest.generation,
            manifest.precision,
            package.choice(),
        )

    @property
    def rules(self) -> TargetRules:
        """What holds for every target."""
        return target_rules(self.config, self.generation)


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
    workers = worker_count(model.precision, device, limits.workers)
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
    most = model.config.max_positions
    graphs = model.encoder, model.decoder, model.config, source_tokens or most, target_tokens or most
    if takes_threads(model.precision, device):
        return CpuDecoder(*graphs, model.choice)
    return CudaDecoder(*graphs, model.precision, device, model.choice)


def takes_threads(precision: str, device: Device) -> bool:
    """Whether many threads at once run a model: fp32 on the CPU."""
    return device.kind == "cpu" and precision == "fp32"


def worker_count(precision: str, device: Device, wanted: int | None) -> int:
    """How many workers there are to be: one for every core, or one where one thread drives the device.

    Raises DeviceError where more are wanted.
    """
    if takes_threads(precision, device):
        return wanted or usable_cores()
    if wanted not in (None, 1):
        what = "a CUDA device" if device.kind == "cuda" else f"a package of precision {precision}"
        raise DeviceError(f"workers is {wanted}; {what} takes 1, with one running batch: raise max_rows")
    return 1
