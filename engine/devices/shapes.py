"""Graphs against what the manifest declares: engines trust it with memory, and graphs with what they write there."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnxruntime as ort

from models.package.checked import EXPORT_AGAIN, PackageError
from models.package.declared.graphs import GraphsSpec
from models.package.declared.tensors import CacheTensor

Axes = tuple[int | str, ...]
"""A word stands for any number."""


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
            if not _alike(tuple(value.shape), axes):
                raise PackageError(
                    f"{value.name} of a graph is {value.shape}, and the manifest says {list(axes)}; {EXPORT_AGAIN}"
                )


def check_outputs(session: ort.InferenceSession, names: Iterable[str]) -> None:
    """Raises PackageError where a graph does not give one of them: few calls ask for it, and would end the engine."""
    there = {output.name for output in session.get_outputs()}
    for name in names:
        if name not in there:
            raise PackageError(f"a graph has no output {name}, which the manifest declares; {EXPORT_AGAIN}")


def _declared(spec: GraphsSpec, cache: Sequence[CacheTensor]) -> Iterator[tuple[str, Axes]]:
    for tensor in cache:
        for name in (tensor.past, tensor.present, tensor.start):
            if name is not None:
                yield name, tensor.axes
    if spec.logits is not None:
        yield spec.logits.name, ("rows", spec.logits.size)


def _alike(found: Axes, declared: Axes) -> bool:
    pairs = zip(found, declared, strict=False)
    return len(found) == len(declared) and all(str in map(type, pair) or pair[0] == pair[1] for pair in pairs)
