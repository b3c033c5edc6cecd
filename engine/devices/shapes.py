"""Graphs against what the manifest declares: engines trust it with memory, and graphs with what they write there."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnxruntime as ort

from models.package.checked import EXPORT_AGAIN, PackageError
from models.package.declared.graphs import GraphsSpec
from models.package.declared.inputs_outputs import Axes, alike
from models.package.declared.tensors import CacheTensor

FP32 = "tensor(float)"
"""As ONNX Runtime calls it."""


def check_shapes(
    sessions: Iterable[ort.InferenceSession],
    spec: GraphsSpec,
    cache: Sequence[CacheTensor],
    others: Mapping[str, Axes] | None = None,
) -> None:
    """Raises PackageError where a graph has another shape than is declared.

    cache: of these graphs. others: of tensors besides, by name
    """
    declared = dict(_declared(spec, cache)) | dict(others or {})
    for session in sessions:
        for value in (*session.get_inputs(), *session.get_outputs()):
            axes = declared.get(value.name, tuple(value.shape))
            if not alike(tuple(value.shape), axes):
                raise PackageError(
                    f"{value.name} of a graph is {value.shape}, and the manifest says {list(axes)}; {EXPORT_AGAIN}"
                )


def check_fp32(session: ort.InferenceSession, names: Iterable[str], may_lack: Iterable[str]) -> None:
    """Raises PackageError where a graph does not give these outputs in fp32."""
    types = {value.name: value.type for value in session.get_outputs()}
    for name in (*names, *(name for name in may_lack if name in types)):
        if types.get(name) != FP32:
            found = types.get(name, "not there")
            raise PackageError(f"{name} of a graph is {found}, and must be {FP32}; {EXPORT_AGAIN}")


def _declared(spec: GraphsSpec, cache: Sequence[CacheTensor]) -> Iterator[tuple[str, Axes]]:
    for tensor in cache:
        for name in (tensor.past, tensor.present, tensor.start):
            if name is not None:
                yield name, tensor.axes
    if spec.logits is not None:
        yield spec.logits.name, ("rows", spec.logits.size)
