"""A native decoder graph in the standard one's place: the decoder of standard graphs runs it."""

from dataclasses import replace

from engine.cpu.decoder import CpuDecoder
from engine.errors import KernelsRefused
from engine.native.library import library_of
from models.package.graph_files import GraphFiles


def open_step(graphs: GraphFiles, source_capacity: int, target_capacity: int) -> CpuDecoder:
    """Of a package that has one. Raises KernelsRefused where it does not run here."""
    step = graphs.spec.native_step
    assert step is not None
    library = library_of(step.operators)
    spec = graphs.spec.model_copy(update={"decoder": step.decoder, "cache": step.cache})
    try:
        return CpuDecoder(replace(graphs, spec=spec), source_capacity, target_capacity, library)
    except Exception as error:  # the errors of ONNX Runtime have nothing else in common
        raise KernelsRefused(f"the native graphs do not load: {error}") from error
