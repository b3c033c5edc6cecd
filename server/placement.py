"""From the settings to the device that the model is served on."""

import logging
import math
from collections.abc import Callable

from engine.devices.cudart import CudaError, CudaRuntime
from engine.devices.machine import Machine
from engine.devices.selection import Wanted, select_device
from engine.devices.session import Device
from engine.devices.sizing import Load
from models.package.folder import Package
from server.config import Settings

log = logging.getLogger(__name__)


def serving_device(settings: Settings, package: Package, machine: Machine) -> Device:
    """Chooses the device, and logs the choice where there was one. Raises DeviceError."""
    graphs = package.manifest.graphs
    most = graphs.max_positions
    load = Load(graphs, settings.max_rows, settings.max_source_tokens or most, settings.max_new_tokens or most)
    wanted = Wanted(settings.device, settings.device_id, settings.device_memory_fraction, settings.cuda_graphs)
    device, obstacle = select_device(wanted, load, machine)
    if settings.device == "auto":
        log.info("--device auto chooses %s%s", device.kind, f": {obstacle}" if obstacle else "")
    return device


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
