"""Holds the exported graphs to the model they were made of, and writes down how near they are.

The graphs run as they are served, with the decoder of their device and `engine`: step by step, the cache in
place. What they are compared with, see `export.verification.reference`, has no such cache.
"""

import gc
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine.decoder import Decoder, S
from engine.devices.session import CPU, Device, DeviceError
from engine.errors import NotFinite
from engine.loading import load
from engine.loading.load import Kernels, Loadable
from engine.processors.chain import without_processors
from engine.request import Hypothesis
from export.tell import Tell
from export.verification.alignment import choose_aligner
from export.verification.compare_numbers import (
    attention_error,
    encoded_error,
    encoder_error,
    native_encoder_error,
    score_error,
    stack_errors,
    step_errors,
)
from export.verification.compare_tokens import Samples, translate
from export.verification.probes import record_probes
from export.verification.tolerances import NATIVE, SCREENED, TOLERANCES
from models.architectures.architecture import Architecture
from models.architectures.prefix.model import Prefix
from models.checkpoint import Checkpoint
from models.package.declared.attention import Aligner
from models.package.declared.graphs import Probe
from models.package.graph_files import GraphFiles
from models.package.manifest import Certificate, Quantization, StepError
from models.transformer import Transformer

BATCHES = ((1, False), (3, False), (3, True), (8, False), (8, True))
"""Rows, and whether they are ragged."""
MAX_TOKENS = 128
"""Most tokens of a sample's source and of its target: one that runs on shows nothing more after that."""

TOO_LARGE = "those on the way there are beyond what its precision holds, as after a training that diverged"
"""Why there is none, where the weights have some."""

OfTargets = tuple[float | None, float | None]
"""Errors of scores and of attention."""
UNKNOWN: OfTargets = None, None


class Certified(NamedTuple):
    """What was found of graphs of a kind."""

    certificate: Certificate
    greedy: Sequence[Hypothesis]
    """Of the samples, as requests are decoded."""
    plain: Sequence[Hypothesis]
    """The same where no option changes scores, and the decoder is told no language."""


class VerificationError(Exception):
    """The graphs are not the model. The message says in which points."""


@dataclass(frozen=True)
class Verified:
    """What was found."""

    certificate: Certificate
    """Of the standard graphs."""
    native: Certificate | None = None
    """Of the native ones, or of the step for GPUs."""
    probes: tuple[Probe, ...] = ()
    aligner: Aligner | None = None

    def with_quantization(self, report: Quantization) -> "Verified":
        """Says what 8 bits cost as well."""
        return replace(self, certificate=self.certificate.model_copy(update={"quantization": report}))


def verify(
    checkpoint: Checkpoint,
    folder: Path,
    graphs: GraphFiles,
    texts: Sequence[str],
    device: Device,
    tell: Tell,
    emulated: Architecture | None = None,
) -> Verified:
    """Compares the graphs with the checkpoint in `folder`, those of our own operators on the CPU.

    Raises VerificationError.

    emulated: what the numbers of native graphs are held to, if not to the checkpoint's
    """
    verification = _Verification(checkpoint, folder, graphs, texts, tell)
    verification.samples.ask_transformers(tell)
    gc.collect()  # the weights of transformers, before a session of the graphs has its own
    (certificate, _, standard), aligner = verification.certify(device)
    sources, penalty = verification.samples.sources, checkpoint.generation.length_penalty
    spec = graphs.spec
    if spec.native is None and spec.native_step is None and spec.device_step is None:
        return Verified(certificate, probes=record_probes(sources, standard, standard, penalty), aligner=aligner)
    native, _, found = verification.certify_native(certificate.encoder_error, emulated or checkpoint.model)
    return Verified(certificate, native, record_probes(sources, standard, found, penalty), aligner)


class _Verification:
    """What the graphs of one kind, and then those of the other, are held to."""

    def __init__(
        self, checkpoint: Checkpoint, folder: Path, graphs: GraphFiles, texts: Sequence[str], tell: Tell
    ) -> None:
        self._checkpoint, self._tell = checkpoint, tell
        self._model = Loadable(graphs, checkpoint.generation)
        self._limits = TOLERANCES[graphs.spec.precision.weights]
        self._capacity = most_tokens(graphs.spec.max_positions)
        self.samples = Samples(checkpoint, folder, self._capacity, texts, self._limits.share, graphs.shortlist)

    def certify(self, device: Device) -> tuple[Certified, Aligner | None]:
        """The standard graphs, and what aligns. Raises VerificationError."""
        model, tell = self._checkpoint.model, self._tell
        hidden, of_targets = self._errors(device)
        with closing(open_decoder(self._model, device)) as decoder:
            screened = self._model.graphs.spec.output_layer == "screened"
            limits = self._limits.error, SCREENED if screened else 0.0
            certified = self._certify(decoder, model, hidden, limits, "exported", tell, of_targets)
            return certified, self._aligner(decoder, certified.greedy)

    def _aligner(self, decoder: Decoder[S], greedy: Sequence[Hypothesis]) -> Aligner | None:
        """What aligns these translations of the samples."""
        if self._model.graphs.spec.scoring is None:
            return None
        self._tell("alignment of names and numbers")
        return choose_aligner(self.samples.attended(decoder, greedy))

    def _errors(self, device: Device) -> tuple[float, OfTargets]:
        """Of hidden states, and of given targets' scores and attention. Raises VerificationError.

        None where no graph tells. Each session is gone before the next is there.
        """
        model, graphs = self._checkpoint.model, self._model.graphs
        try:
            self._tell("hidden states")
            hidden = encoder_error(model, graphs, device)
            if graphs.spec.reads_on:
                assert isinstance(model, Prefix), "no other reads on"
                self._tell("attention")
                attention, states = stack_errors(model, graphs, device)
                return float(np.max([hidden, states])), (None, attention)
            if graphs.spec.scoring is None:
                return hidden, UNKNOWN
            self._tell("scores of targets, attention")
            scores = score_error(model, graphs, device)
            return hidden, (scores, attention_error(model, graphs, device, self.samples.attention))
        except DeviceError as error:
            raise VerificationError(f"ONNX Runtime does not load the exported graphs: {error}") from error

    def certify_native(self, hidden: float, reference: Architecture) -> Certified:
        """hidden: error of the standard encoder, which may be theirs too. Raises VerificationError."""
        native = self._model.graphs.spec.native
        limits = NATIVE[self._model.graphs.spec.precision.weights], 0.0
        with closing(open_decoder(self._model, CPU, "required")) as decoder:
            step = self._model.graphs.spec.device_step
            if step is not None and step.encoder is not None:
                hidden = encoded_error(reference, decoder)
            if native is not None:
                assert isinstance(reference, Transformer), "export makes native graphs of no other"
                hidden, limits = native_encoder_error(reference, self._model.graphs, native), (limits[0], SCREENED)
            return self._certify(decoder, reference, hidden, limits, "native", partial(_told_of, self._tell))

    def _certify(
        self,
        decoder: Decoder[S],
        reference: Architecture,
        hidden: float,
        limits: tuple[float, float],
        which: str,
        tell: Tell,
        of_targets: OfTargets = UNKNOWN,
    ) -> Certified:
        """Holds steps and translations to the checkpoint.

        hidden, of_targets: errors of hidden states, of given targets
        limits: of errors, and of what all candidates of a row are off alike besides
        """
        steps = list[StepError]()
        for rows, ragged in BATCHES:
            tell(f"log-probabilities, {batch_name(rows, ragged)}")
            shortlist = self._model.graphs.shortlist
            steps += step_errors(reference, decoder, self._capacity, rows, ragged, shortlist)
        try:
            found, ran_on = self.samples.compare(decoder, tell), decoder.device
        except NotFinite as error:
            raise VerificationError(
                f"the {which} graphs give no finite numbers of a sample: {too_large(self._model.graphs)}"
            ) from error
        certificate = Certificate(
            device=" ".join(part for part in (ran_on.kind, ran_on.name, ran_on.kernels) if part),
            tolerance=limits[0],
            normaliser_tolerance=limits[1],
            encoder_error=hidden,
            score_error=of_targets[0],
            attention_error=of_targets[1],
            steps=tuple(steps),
            agreements=found.agreements,
        )
        problems = [*large_errors(certificate), *found.differences]
        if problems:
            raise VerificationError("\n  ".join([f"the {which} graphs differ from the checkpoint:", *problems]))
        return Certified(certificate, found.greedy, self._plain(decoder, found.greedy))

    def _plain(self, decoder: Decoder[S], greedy: Sequence[Hypothesis]) -> Sequence[Hypothesis]:
        """What greedy search finds where the model's own options leave its scores and lengths as they are.

        Nor is the decoder told a language.
        """
        generation = self._checkpoint.generation
        plain = replace(without_processors(generation), min_new_tokens=0)
        if plain == generation and not self._checkpoint.languages:
            return greedy
        return translate(self._model.graphs.spec.vocabulary, plain, decoder, self.samples.sources)[1]


def open_decoder(model: Loadable, device: Device, kernels: Kernels = "off") -> Decoder[Any]:
    """The decoder that serves the graphs on this device. Raises VerificationError."""
    capacity = most_tokens(model.graphs.spec.max_positions)
    try:
        return load.open_decoder(model, device, capacity, capacity, kernels)
    except Exception as error:  # the errors of ONNX Runtime have nothing else in common
        raise VerificationError(f"ONNX Runtime does not load the exported graphs: {error}") from error


def too_large(graphs: GraphFiles) -> str:
    """Why numbers may be no finite ones, where those of the checkpoint are."""
    if graphs.spec.precision.weights == "fp16":
        return "fp16 ends at 65504, which this model's go beyond; export it with --precision fp32 or bf16"
    return TOO_LARGE


def most_tokens(max_positions: int) -> int:
    """Of a sample's source, and of its target."""
    return min(max_positions, MAX_TOKENS)


def large_errors(certificate: Certificate) -> Iterator[str]:
    """What is above the tolerance. NaN is."""
    limit = f"at most {certificate.tolerance:g} is accepted"
    if not certificate.encoder_error <= certificate.tolerance:
        yield f"hidden states differ by {certificate.encoder_error:.3g}; {limit}"
    if certificate.score_error is not None and not certificate.score_error <= certificate.tolerance:
        yield f"log-probabilities of given targets differ by {certificate.score_error:.3g}; {limit}"
    if certificate.attention_error is not None and not certificate.attention_error <= certificate.tolerance:
        yield f"attention differs by {certificate.attention_error:.3g}; {limit}"
    for step in certificate.steps:
        batch = f"{batch_name(step.rows, step.ragged)}, {step.past} tokens past"
        if not step.logit_error <= certificate.tolerance:
            yield f"logits ({batch}) differ by {step.logit_error:.3g}; {limit}"
        most = certificate.tolerance + certificate.normaliser_tolerance
        if not step.log_prob_error <= most:
            yield f"log-probabilities ({batch}) differ by {step.log_prob_error:.3g}; at most {most:g} is accepted"


def _told_of(tell: Tell, detail: str) -> None:
    tell(f"native graphs, {detail}")


def batch_name(rows: int, ragged: bool) -> str:
    """As people say it."""
    return f"{rows} {'ragged ' if ragged else ''}row{'s' if rows > 1 else ''}"
