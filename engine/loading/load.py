"""THE one way from a package to a running engine."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from engine.cpu.decoder import CpuDecoder
from engine.cpu.encoder import CpuEncoder
from engine.decoder import Decoder
from engine.devices.machine import usable_cores
from engine.devices.memory import resident_bytes
from engine.devices.selection import check_memory
from engine.devices.session import Device, DeviceError
from engine.devices.sizing import Load
from engine.errors import KernelsRefused
from engine.loading.budget import HostLoad, HostMemory, fit, megabytes, total_bytes
from engine.loading.driven import DrivenLoad
from engine.loading.native_step import open_step
from engine.loading.probes import (
    check_beginnings,
    check_probes,
    check_rough_vector,
    check_vectors,
    fitting,
    fitting_vectors,
)
from engine.native.alone import NativeEncoder
from engine.native.decoder import NativeDecoder
from engine.niceness import AT_ONCE, Pace
from engine.observer import Observer, Unobserved
from engine.runner import Runner
from engine.supervision.cores import Cores
from engine.supervision.policy import UNSUPERVISED, Supervision
from engine.targets import TargetRules, target_rules
from models.package.checked import EXPORT_AGAIN, PackageError
from models.package.declared.numbers import Precisions
from models.package.folder import Package
from models.package.graph_files import GraphFiles
from models.package.manifest import GenerationDefaults

log = logging.getLogger(__name__)

N = TypeVar("N", bound=Decoder[Any])
Kernels = Literal["auto", "off", "required"]
"""Our own operators: where they are built and say what they must; never; or nothing else."""
ROWS = 64
"""Of a running batch, where nobody says."""
PORTABLE = "portable"
"""Instructions of any processor. Nothing is fast with them."""


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

    rows: int | None = None
    """Of each worker's running batch. None: ROWS, and fewer where there is no memory for as many."""
    workers: int | None = None
    """None: one for each core, and fewer where there is no memory for as many."""
    source_tokens: int | None = None
    target_tokens: int | None = None
    memory: HostMemory | None = None
    """Of the host. None: it is not looked at."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A model that is to be loaded."""

    model: Loadable
    limits: Limits
    observer: Observer
    pace: Pace = AT_ONCE
    """So fast it is loaded."""
    costs_as: Runner | None = None
    """Its steps are as much work, and were measured. None: they are measured."""


def load(
    model: Loadable,
    device: Device,
    limits: Limits,
    observer: Observer | None = None,
    kernels: Kernels = "auto",
    supervision: Supervision = UNSUPERVISED,
) -> Runner:
    """Loads a model on a device. It runs inside the context of what is returned.

    Raises DeviceError where a graph does not run on the device, the device or the host has no room, or kernels are
    required.
    """
    [runner] = load_all([Plan(model, limits, observer or Unobserved())], device, limits.memory, kernels, supervision)
    return runner


def load_all(
    plans: Sequence[Plan],
    device: Device,
    memory: HostMemory | None,
    kernels: Kernels,
    supervision: Supervision,
    cores: Cores | None = None,
) -> list[Runner]:
    """Loads several models on a device: all of them, or none. See `load`; what is wrong with one names its folder.

    memory: of the host, for all of them. cores: those that models use that are loaded already
    """
    with ExitStack() as undo:
        opened = list[_Opened]()
        for plan in plans:
            before = resident_bytes()
            lengths = plan.limits.source_tokens, plan.limits.target_tokens
            with _naming(plan.model.graphs.folder):
                decoder = open_decoder(plan.model, device, *lengths, kernels, plan.pace)
            undo.callback(decoder.close)
            opened.append(_Opened(plan, decoder, device, max(0, resident_bytes() - before)))
        if memory is not None:
            _fit(opened, memory)
        cores = cores or Cores()
        runners = [one.runner(supervision, cores) for one in opened]
        undo.pop_all()
    return runners


def check_room(plan: Plan, device: Device, others_bytes: int, memory: HostMemory | None, kernels: Kernels) -> None:
    """Before a model is loaded beside others, which may come to take so much. Raises DeviceError without room.

    memory: of the host, with what the process takes without any model as resident. None: it is not known
    """
    graphs, limits = plan.model.graphs.spec, plan.limits
    if device.kind == "cuda":
        most = graphs.max_positions
        lengths = limits.source_tokens or most, limits.target_tokens or most
        load = Load(graphs, limits.rows or ROWS, *lengths, besides_bytes=others_bytes)
        check_memory(load, device.memory_limit_bytes, f"device {device.index} ({device.name}) has all of them")
    if memory is None or device.kind == "cuda":
        return
    native = graphs.native if kernels != "off" and takes_threads(graphs.precision, device) else None
    first = (
        (graphs.encoder, graphs.packed_encoder, graphs.decoder) if native is None else (native.encoder, native.decoder)
    )
    weights = sum(file.weight_bytes for file in first if file is not None)
    resident = memory.resident_bytes + others_bytes + weights
    fit([_host_load(plan, device, native=native is not None)], replace(memory, resident_bytes=resident))


class _Opened:
    """A model whose graphs are loaded."""

    def __init__(self, plan: Plan, decoder: Decoder[Any], device: Device, loaded_bytes: int) -> None:
        graphs = plan.model.graphs.spec
        self.plan, self.decoder, self._loaded_bytes = plan, decoder, loaded_bytes
        self.on_host = device.kind == "cpu"
        self.takes_threads = takes_threads(graphs.precision, device)
        self.load = _host_load(plan, device, native=isinstance(decoder, NativeDecoder | NativeEncoder))
        self.longest = self.load.source_tokens, self.load.target_tokens
        if counters := getattr(decoder, "counters", None):  # some decoders have them
            plan.observer.kernels(counters)

    def runner(self, supervision: Supervision, cores: Cores) -> Runner:
        """Raises DeviceError."""
        load, observer = self.load, self.plan.observer
        runner = Runner(
            self.decoder,
            load.rows,
            load.workers,
            observer,
            owns_decoder=True,
            supervision=supervision,
            cores=cores,
            express_rows=load.express_rows,
        )
        on_device = Load(load.graphs, load.rows, *self.longest)
        runner.memory_bytes = self._loaded_bytes + load.needed_bytes if self.on_host else on_device.total_bytes
        if self.plan.costs_as is not None:
            runner.costs_as(self.plan.costs_as)
        elif self.takes_threads:  # a GPU's thread makes its own CUDA graphs first
            with _naming(self.plan.model.graphs.folder):
                measure(runner, *self.longest)
        return runner


def _host_load(plan: Plan, device: Device, native: bool) -> HostLoad:
    """Raises DeviceError where more workers are wanted than there may be."""
    graphs, limits = plan.model.graphs.spec, plan.limits
    longest = limits.source_tokens or graphs.max_positions, limits.target_tokens or graphs.max_positions
    workers = worker_count(graphs.precision, device, limits.workers)
    parts = graphs, native, workers, limits.rows or ROWS, *longest
    return HostLoad(*parts) if takes_threads(graphs.precision, device) else DrivenLoad(*parts, device.kind == "cpu")


def _fit(opened: Sequence[_Opened], memory: HostMemory) -> None:
    """Leaves them as many rows and workers as the host's memory has room for. Raises DeviceError."""
    if not opened:
        return
    loads, memory = [one.load for one in opened], replace(memory, resident_bytes=resident_bytes())
    limits = [one.plan.limits for one in opened]
    fewer_rows, fewer_workers = all(one.rows is None for one in limits), all(one.workers is None for one in limits)
    fitting = fit(loads, memory, fewer_rows, fewer_workers)
    budget = total_bytes(fitting, memory)
    if fitting != loads:
        log.warning(
            "workers x rows: %d x %d, not %d x %d, which may take %d MB: %d MB may be used",
            *(fitting[0].workers, fitting[0].rows, loads[0].workers, loads[0].rows),
            *map(megabytes, (total_bytes(loads, memory), memory.limit_bytes)),
        )
    log.info("at most %d MB of memory may be needed, of %d MB", *map(megabytes, (budget, memory.limit_bytes)))
    for one, load in zip(opened, fitting, strict=True):
        one.load = load
        one.plan.observer.memory(budget, memory.limit_bytes)


def measure(runner: Runner, source_tokens: int, target_tokens: int) -> None:
    """Lets a runner know what steps cost. Raises DeviceError where the model does not decode."""
    try:
        runner.measure(source_tokens, target_tokens)
    except Exception as error:
        raise DeviceError(f"the model does not decode: {error}") from error


@contextmanager
def _naming(folder: Path) -> Iterator[None]:
    """What cannot be used is told with its folder: a server may load several. Raises DeviceError, PackageError."""
    try:
        yield
    except (DeviceError, PackageError) as error:
        told = str(error) if str(folder) in str(error) else f"{folder}: {error}"
        raise type(error)(told) from error


def open_decoder(
    model: Loadable,
    device: Device,
    source_tokens: int | None = None,
    target_tokens: int | None = None,
    kernels: Kernels = "auto",
    pace: Pace = AT_ONCE,
) -> Decoder[Any]:
    """The decoder that runs a model on a device, with rows of so many tokens.

    Raises DeviceError, and PackageError where the graphs are not what the manifest declares.
    """
    try:
        return _open_decoder(model, device, source_tokens, target_tokens, kernels, pace)
    except (DeviceError, PackageError):
        raise
    except Exception as error:  # a graph may fail with anything in its first runs
        raise DeviceError(f"the graphs do not run ({_told(error)}); {EXPORT_AGAIN}") from error


def _open_decoder(
    model: Loadable,
    device: Device,
    source_tokens: int | None,
    target_tokens: int | None,
    kernels: Kernels,
    pace: Pace,
) -> Decoder[Any]:
    """See `open_decoder`."""
    graphs, most = model.graphs, model.graphs.spec.max_positions
    capacities = source_tokens or most, target_tokens or most
    if graphs.spec.decoder is None:
        return _open_encoder(model, device, capacities[0], kernels, pace)
    if takes_threads(graphs.spec.precision, device):
        native = _open_native(partial(_native_decoder, model, capacities, pace), graphs, kernels)
        return native or _standard_decoder(model, capacities, pace)
    if kernels == "required" and graphs.spec.device_step is None:
        raise DeviceError(f"kernels are required; {_described(graphs.spec.precision, device)} has none: leave that out")
    if graphs.spec.slots and device.kind != "cpu":
        raise DeviceError(
            "the package has relative positions in fused attention, which runs on the CPU only: serve it with "
            "--device cpu, or export it with --attention plain"
        )
    if graphs.spec.vocabulary.continues:
        raise DeviceError("the package is one stack for source and target, which runs on the CPU only: --device cpu")
    from engine.cuda.decoder import CudaDecoder  # not before: most servers have no such device

    step = None
    # On a CPU its operators are there to be compared with, and slower than ONNX Runtime's.
    if graphs.spec.device_step is not None and (device.kind != "cpu" or kernels == "required"):
        step = _open_native(partial(CudaDecoder.open_step, graphs, *capacities, device), graphs, kernels)
    return step or CudaDecoder(graphs, *capacities, device)


def _open_encoder(
    model: Loadable, device: Device, source_tokens: int, kernels: Kernels, pace: Pace
) -> NativeEncoder | CpuEncoder:
    """Raises DeviceError."""
    if device.kind != "cpu":
        raise DeviceError("the package is an encoder alone, which runs on the CPU only: serve it with --device cpu")
    graphs = model.graphs
    native = _open_native(partial(_native_encoder, graphs, source_tokens, pace), graphs, kernels)
    return native or _standard_encoder(graphs, source_tokens, pace)


def _native_encoder(graphs: GraphFiles, source_tokens: int, pace: Pace) -> NativeEncoder:
    """Raises KernelsRefused where its vectors of the package's probes are not as they must be."""
    encoder = NativeEncoder.open(graphs, source_tokens, pace)
    check_vectors(encoder, fitting_vectors(graphs.spec.vector_probes, source_tokens), pace)
    return encoder


def _native_decoder(model: Loadable, capacities: tuple[int, int], pace: Pace) -> NativeDecoder | CpuDecoder:
    """Raises KernelsRefused where it does not answer the package's probes as it must."""
    step = model.graphs.spec.native_step
    if step is None:
        decoder: NativeDecoder | CpuDecoder = NativeDecoder.open(model.graphs, *capacities, pace)
    else:
        decoder = open_step(model.graphs, *capacities)
    check_probes(decoder, model.rules, fitting(model.graphs.spec.probes, *capacities), pace)
    return decoder


def _standard_encoder(graphs: GraphFiles, source_tokens: int, pace: Pace) -> CpuEncoder:
    """Raises DeviceError where its vectors of the package's probes are nonsense."""
    encoder = CpuEncoder(graphs, source_tokens)
    check_rough_vector(encoder, fitting_vectors(graphs.spec.vector_probes, source_tokens), pace)
    return encoder


def _standard_decoder(model: Loadable, capacities: tuple[int, int], pace: Pace) -> CpuDecoder:
    """Raises DeviceError where it answers the package's probes with nonsense."""
    decoder = CpuDecoder(model.graphs, *capacities)
    check_beginnings(decoder, model.rules, fitting(model.graphs.spec.probes, *capacities), pace)
    return decoder


def _open_native(opened: Callable[[], N], graphs: GraphFiles, kernels: Kernels) -> N | None:
    """What runs on our own operators, checked. None: the log says why it does not.

    Raises DeviceError where it is required.
    """
    if kernels == "off":
        log.info("standard graphs: kernels are off")
        return None
    try:
        decoder = opened()
    except Exception as error:  # a graph may fail with anything in its first runs
        told = str(error) if isinstance(error, KernelsRefused) else f"the native graphs do not run ({_told(error)})"
        if kernels == "required":
            raise DeviceError(f"kernels are required: {told}") from error
        expected = graphs.spec.native or graphs.spec.native_step or graphs.spec.device_step
        log.log(logging.INFO if expected is None else logging.WARNING, "standard graphs: %s", told)
        return None
    isa = decoder.device.kernels
    if isa == PORTABLE:
        log.warning("native kernels: portable, which are slow: this processor has no instructions of kernels/README.md")
    else:
        log.info("native kernels: %s", isa)
    return decoder


def _told(error: Exception) -> str:
    """Of an error that nobody wrote for whoever reads it."""
    return f"{type(error).__name__}: {error}"


def takes_threads(precision: Precisions, device: Device) -> bool:
    """Whether many threads at once run a model: fp32 or 8 bits on the CPU."""
    return device.kind == "cpu" and {precision.activations, precision.cache} <= {"fp32", "int8"}


def worker_count(precision: Precisions, device: Device, wanted: int | None) -> int:
    """How many workers there are to be: one for every core, or one where one thread drives the device.

    Raises DeviceError where more are wanted.
    """
    if takes_threads(precision, device):
        return wanted or usable_cores()
    if wanted not in (None, 1):
        what = _described(precision, device)
        raise DeviceError(f"workers is {wanted}; {what} takes 1, with one running batch: raise max_rows")
    return 1


def _described(precision: Precisions, device: Device) -> str:
    """What takes no threads."""
    return "a CUDA device" if device.kind == "cuda" else f"a package of precision {precision.activations}"
