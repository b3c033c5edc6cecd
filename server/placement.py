"""From the settings to the device that the model is served on."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from engine.devices.cudart import CudaError, CudaRuntime
from engine.devices.machine import Machine
from engine.devices.memory import memory_limit
from engine.devices.selection import Wanted, select_device
from engine.devices.session import Device
from engine.devices.sizing import Load
from engine.loading.budget import MEGABYTE, HostMemory, megabytes
from engine.loading.load import ROWS
from models.package.declared.graphs import GraphsSpec
from server.catalog.served_model import ServedModel
from server.config import Settings

log = logging.getLogger(__name__)

TOKEN_BYTES = 48
"""Of a text that waits: a number of Python with its place in a list, and its characters."""
REST_BYTES = 32 * MEGABYTE
"""A message that is being parsed, tokenizers, what the allocator has between its pieces: an estimate."""


def serving_device(settings: Settings, models: Sequence[GraphsSpec], machine: Machine) -> Device:
    """Chooses the device of all models, and logs the choice where there was one. Raises DeviceError."""
    kind = settings.device
    wanted = Wanted(kind, settings.device_id, settings.device_memory_fraction, settings.cuda_graphs)
    loads = [_load(settings, graphs) for graphs in models]
    every = sum(load.total_bytes for load in loads)
    loads = [replace(load, besides_bytes=every - load.total_bytes) for load in loads]
    chosen = [select_device(wanted, load, machine) for load in loads]
    device, obstacle = next(((one, why) for one, why in chosen if one.kind == "cpu"), chosen[0])
    if kind == "auto":
        if device.kind == "cpu":  # one model that CUDA is not for keeps all of them from it
            for load in loads:
                select_device(replace(wanted, kind="cpu"), load, machine)
        log.info("--device auto chooses %s%s", device.kind, f": {obstacle}" if obstacle else "")
    return device


def _load(settings: Settings, graphs: GraphsSpec) -> Load:
    most = graphs.max_positions
    return Load(graphs, settings.max_rows or ROWS, settings.max_source_tokens or most, settings.max_new_tokens or most)


def host_limit(settings: Settings) -> int | None:
    """Bytes that the process may take. None: the system does not tell."""
    return memory_limit() if settings.memory_mb is None else settings.memory_mb * MEGABYTE


def warn_of_memory(memory_mb: int | None) -> None:
    """Says so where it is told to count on memory that the system does not let the process have."""
    limit = memory_limit()
    if memory_mb is not None and limit is not None and memory_mb * MEGABYTE > limit:
        log.warning(
            "memory_mb is %d, and the machine or container has %d MB: a server that comes to need more is killed",
            memory_mb,
            megabytes(limit),
        )


def host_memory(settings: Settings, models: Sequence[ServedModel], callers_bytes: int) -> HostMemory | None:
    """What engines may count on. None: the system does not tell how much memory there is.

    callers_bytes: what callers may take of it, beside their texts
    """
    limit = host_limit(settings)
    if limit is None:
        return None
    waiting = sum(settings.max_waiting * model.max_source_tokens * TOKEN_BYTES for model in models)
    besides = settings.cache_mb * MEGABYTE + waiting + REST_BYTES
    least_rows = max(model.defaults.num_beams for model in models)
    return HostMemory(limit, 0, besides, callers_bytes, least_rows, served=callers_bytes > 0)


def device_memory(runtime: CudaRuntime, index: int) -> Callable[[], tuple[float, float]]:
    """A function that tells the free and total bytes of a CUDA device, from any thread. NaN: it does not answer."""

    def memory() -> tuple[float, float]:
        try:
            runtime.set_device(index)
            return runtime.memory()
        except CudaError:  # all the other metrics are wanted then more than ever
            return math.nan, math.nan

    return memory


def facts(device: Device) -> dict[str, str]:
    """What is told of a device, in the log and as a metric."""
    options = {key: value for key, value in device.provider_options(capture=True).items() if key != "device_id"}
    return {
        "device": device.kind if device.kind == "cpu" else f"{device.kind}:{device.index}",
        "name": device.name,
        "provider": device.provider,
        "kernels": device.kernels,
        "compute_capability": device.compute_capability,
        "driver": device.driver,
        "options": ",".join(f"{key}={value}" for key, value in options.items()),
    }
