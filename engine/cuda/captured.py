"""Graphs that are captured as CUDA graphs, where ONNX Runtime can."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import onnxruntime as ort

from engine.cuda.runtime import DeviceRuntime
from engine.devices.session import CAPTURE_REFUSED, NO_GRAPH, DeviceError, run_options
from models.package.graph_files import Graph

log = logging.getLogger(__name__)

GRAPH_IDS = count(1)
"""Of captured CUDA graphs: a session keeps all of its own apart by them."""


def open_captured(
    runtime: DeviceRuntime, graph: Graph, library: Path | None, runs: str
) -> tuple[ort.InferenceSession, bool]:
    """Loads a graph to be captured, or if it cannot be, to be launched kernel by kernel; and whether it is captured.

    runs: what its runs are, for the log. Raises DeviceError.
    """
    try:
        return runtime.open_session(graph, capture=True, library=library), runtime.device.cuda_graphs
    except Exception as error:  # the errors of ONNX Runtime have nothing else in common
        if CAPTURE_REFUSED not in str(error):
            raise
        log.warning("%s are launched kernel by kernel: %s", runs, error)
        return runtime.open_session(graph, library=library), False


def captured_options(captured: bool) -> ort.RunOptions:
    """Of runs with addresses that never change: with `captured`, they are one CUDA graph."""
    return run_options(next(GRAPH_IDS) if captured else NO_GRAPH)


@contextmanager
def capturing(captured: bool) -> Iterator[None]:
    """First runs. Raises DeviceError where they cannot be captured."""
    try:
        yield
    except Exception as error:  # the errors of ONNX Runtime have nothing else in common
        if not captured:
            raise
        raise DeviceError(f"CUDA graphs cannot be captured ({error}); start with --no-cuda-graphs") from error
