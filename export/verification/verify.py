"""Holds the exported graphs to the model they were made of, and writes down how near they are.

The graphs run as they are served, with the decoder of their device and `engine`: step by step, the cache in
place. What they are compared with, see `export.verification.reference`, has no such cache.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from engine import load
from engine.decoder import Decoder
from engine.devices.session import Device
from engine.load import Loadable
from export.verification.compare_numbers import encoder_error, step_errors
from export.verification.compare_tokens import SampleComparison
from export.verification.tolerances import TOLERANCES
from models.checkpoint import Checkpoint
from models.package.graph_files import GraphFiles
from models.package.manifest import Certificate

BATCHES = ((1, False), (3, False), (3, True), (8, False), (8, True))
"""Rows, and whether they are ragged."""
MAX_TOKENS = 128
"""Most tokens of a sample's source and of its target: one that runs on shows nothing more after that."""

Progress = Callable[[str], None]
"""Told what is being compared."""


class VerificationError(Exception):
    """The graphs are not the model. The message says in which points."""


def verify(
    checkpoint: Checkpoint,
    folder: Path,
    graphs: GraphFiles,
    texts: Sequence[str],
    device: Device,
    progress: Progress,
) -> Certificate:
    """Compares the graphs with the checkpoint in `folder`. Raises VerificationError."""
    limits = TOLERANCES[graphs.spec.precision.weights]
    capacity, shortlist = most_tokens(graphs.spec.max_positions), graphs.shortlist
    with closing(open_decoder(Loadable(graphs, checkpoint.generation), device)) as decoder:
        progress("hidden states")
        hidden = encoder_error(checkpoint.model, graphs, device)
        steps = []
        for rows, ragged in BATCHES:
            progress(f"log-probabilities, {batch_name(rows, ragged)}")
            steps += step_errors(checkpoint.model, decoder, capacity, rows, ragged, shortlist)
        samples = SampleComparison(checkpoint, folder, capacity, texts, limits.share, shortlist)
        samples.run(decoder, progress)
    certificate = Certificate(
        device=f"{device.kind} {device.name}".strip(),
        tolerance=limits.error,
        encoder_error=hidden,
        steps=tuple(steps),
        agreements=tuple(samples.agreements),
    )
    problems = [*large_errors(certificate), *samples.differences]
    if problems:
        raise VerificationError("\n  ".join(["the exported graphs differ from the checkpoint:", *problems]))
    return certificate


def open_decoder(model: Loadable, device: Device) -> Decoder[Any]:
    """The decoder that serves the graphs on this device."""
    capacity = most_tokens(model.graphs.spec.max_positions)
    try:
        return load.open_decoder(model, device, capacity, capacity)
    except Exception as error:  # the errors of ONNX Runtime have nothing else in common
        raise VerificationError(f"ONNX Runtime does not load the exported graphs: {error}") from error


def most_tokens(max_positions: int) -> int:
    """Of a sample's source, and of its target."""
    return min(max_positions, MAX_TOKENS)


def large_errors(certificate: Certificate) -> Iterator[str]:
    """What is above the tolerance. NaN is."""
    limit = f"at most {certificate.tolerance:g} is accepted"
    if not certificate.encoder_error <= certificate.tolerance:
        yield f"hidden states differ by {certificate.encoder_error:.3g}; {limit}"
    for step in certificate.steps:
        if not step.log_prob_error <= certificate.tolerance:
            batch = f"{batch_name(step.rows, step.ragged)}, {step.past} tokens past"
            yield f"log-probabilities ({batch}) differ by {step.log_prob_error:.3g}; {limit}"


def batch_name(rows: int, ragged: bool) -> str:
    """As people say it."""
    return f"{rows} {'ragged ' if ragged else ''}row{'s' if rows > 1 else ''}"
