"""Holds the graphs of an encoder alone to its PyTorch model, and its vectors to those of a reference."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import tokenizers
import torch
import transformers
from numpy.typing import NDArray

from engine.cpu.encoder import CpuEncoder
from engine.devices.session import CPU
from engine.errors import KernelsRefused
from engine.loading.probes import mean
from engine.native.alone import NativeEncoder
from export.quantization.encoders.encoder import QuantizedEncoder
from export.quantization.model import native_model
from export.verification.compare_numbers import encoder_error, random_sources
from export.verification.reference import open_by_transformers, quiet
from export.verification.tolerances import TOLERANCES
from export.verification.verify import TOO_LARGE, VerificationError, most_tokens
from models.checkpoint.contents import EncoderCheckpoint
from models.encoding.classifier import Classifier
from models.package.declared.graphs import VectorProbe
from models.package.declared.precision import Precision
from models.package.graph_files import GraphFiles
from models.package.manifest import Certificate, VectorAgreement
from models.transformer import Transformer

COSINE: dict[Precision, float] = {"fp32": 0.99999, "int16": 0.99999, "int8": 0.99}
"""Least that is accepted, of a sample sentence's two vectors."""
PROBABILITY: dict[Precision, float] = {"fp32": 1e-4, "int16": 1e-3, "int8": 0.1}
"""Largest difference that is accepted, of a label's probability."""
HEADS = {
    "text": transformers.AutoModelForSequenceClassification,
    "tokens": transformers.AutoModelForTokenClassification,
}
"""By what a classifier labels."""
PROBES, PROBED = 4, 16
"""Sample sentences that are probes, and numbers of each."""

Encoder = CpuEncoder | NativeEncoder


@dataclass(frozen=True)
class Verified:
    """What was found."""

    certificate: Certificate
    """Of the standard graphs."""
    native: Certificate | None = None
    """Of the native one."""
    probes: tuple[VectorProbe, ...] = ()


def verify_vectors(
    checkpoint: EncoderCheckpoint, graphs: GraphFiles, texts: Sequence[str], quantized: QuantizedEncoder | None = None
) -> Verified:
    """Raises VerificationError.

    quantized: what the numbers of the graphs are held to, if not to the checkpoint's
    """
    verification, most = _Verification(checkpoint, graphs, texts), checkpoint.config.max_positions
    encoder, model = CpuEncoder(graphs, most), checkpoint.model if quantized is None else quantized.model
    certificate = verification.certify(encoder, model, "exported", [encoder_error(model, graphs, CPU)])
    if graphs.spec.native is None:
        return Verified(certificate, probes=verification.probes(encoder))
    try:
        native = NativeEncoder.open(graphs, most)
    except KernelsRefused as error:
        raise VerificationError(str(error)) from error
    emulated = checkpoint.model if quantized is None else native_model(checkpoint.model, quantized.recipe)
    certified = verification.certify(native, emulated, "native")
    return Verified(certificate, certified, verification.probes(native))


class _Verification:
    """What the graphs of one kind, and then those of the other, are held to."""

    def __init__(self, checkpoint: EncoderCheckpoint, graphs: GraphFiles, texts: Sequence[str]) -> None:
        self._checkpoint, self._precision = checkpoint, graphs.spec.precision.weights
        self._samples = _Samples(checkpoint, texts)

    def certify(self, encoder: Encoder, model: Transformer, which: str, errors: Sequence[float] = ()) -> Certificate:
        """errors: that were found already."""
        precision = self._precision
        tolerance, least, likely = TOLERANCES[precision].error, COSINE[precision], PROBABILITY[precision]
        found = [*errors, packed_error(model, encoder)]
        agreement, worst = self._samples.compare(encoder), float(np.max(found))
        if precision == "fp32":  # of 8 bits, the cosine says it
            worst = max(worst, agreement.hidden_error)
        problems = []
        if not worst <= tolerance:  # NaN is above it, too
            problems.append(f"hidden states differ by {worst:.3g}; at most {tolerance:g} is accepted")
        if not agreement.cosine >= least:
            problems.append(
                f"a vector's cosine to that of {agreement.reference} is {agreement.cosine:.7g}; "
                f"expected {least} or more"
            )
        if agreement.probability_error is not None and not agreement.probability_error <= likely:
            problems.append(
                f"a label's probability differs from that of {agreement.reference} by "
                f"{agreement.probability_error:.3g}; "
                f"at most {likely:g} is accepted"
            )
        if problems:
            raise VerificationError("\n  ".join([f"the {which} graphs differ from the checkpoint:", *problems]))
        return Certificate(
            device=" ".join(part for part in (CPU.kind, encoder.device.kernels) if part),
            tolerance=tolerance,
            encoder_error=float(np.max(found)),
            steps=(),
            agreements=(),
            vectors=agreement,
        )

    def probes(self, encoder: Encoder) -> tuple[VectorProbe, ...]:
        """What it must say again."""
        sources = self._samples.sources[:PROBES]
        found = zip(sources, encoder.encode(sources), strict=True)
        return tuple(
            VectorProbe(source_ids=tuple(source), numbers=tuple(mean(encoded.hidden())[:PROBED].tolist()))
            for source, encoded in found
        )


@torch.no_grad()
def packed_error(model: Transformer, encoder: Encoder) -> float:
    """Largest difference of a hidden state, of random sources that are packed. Raises VerificationError for other bits.

    A source alone must have the bits that it has among others.
    """
    sources, errors = random_sources(model.config, 8), []
    for source, found in zip(sources, encoder.encode(sources), strict=True):
        expected = model.encode(torch.tensor([source]), torch.tensor([len(source)]))[0]
        errors.append(np.abs(found.hidden() - expected.numpy()).max())
        if encoder.encode([source])[0].hidden().tobytes() != found.hidden().tobytes():
            raise VerificationError(f"a source of {len(source)} tokens has other bits alone than packed with others")
    return float(np.max(errors))


class _Samples:
    """Sample sentences, their tokens by the reference's own tokenizer, and what its model makes of them."""

    def __init__(self, checkpoint: EncoderCheckpoint, texts: Sequence[str]) -> None:
        """Raises VerificationError where tokens differ."""
        self._classifier = checkpoint.classifier if checkpoint.head_in_transformers else None
        ours = checkpoint.open_tokenizer()
        theirs: _Reference
        if checkpoint.in_transformers:
            theirs = _Transformers(checkpoint.folder, self._classifier)
        else:
            theirs = _PyTorch(checkpoint)
        self._reference = theirs.name
        self._encoding = checkpoint.vectors
        most = checkpoint.encoding.max_tokens or most_tokens(checkpoint.config.max_positions)
        self.sources = list[list[int]]()
        for text in texts:
            ids = ours.encode(text)
            if ids != (expected := theirs.tokens(text)):
                raise VerificationError(f"{text!r} has the tokens {ids}; the tokenizer of {theirs.name} has {expected}")
            if len(ids) <= most:
                self.sources.append(ids)
        if not self.sources:
            raise VerificationError(f"no sample sentence has at most {most} tokens; give shorter ones with --samples")
        self._hidden = [theirs.hidden(ids) for ids in self.sources]
        labels = self._classifier
        self._probabilities = [] if labels is None else [theirs.probabilities(ids, labels) for ids in self.sources]

    def compare(self, encoder: Encoder) -> VectorAgreement:
        """With what an encoder makes of them. Raises VerificationError where that is no finite number."""
        errors, cosines = [], []
        ours = [encoder.encode([source])[0].hidden() for source in self.sources]
        for found, hidden in zip(ours, self._hidden, strict=True):
            errors.append(np.abs(found - hidden).max())
            try:
                vectors = [self._encoding.of(states).data.astype(np.float64).ravel() for states in (found, hidden)]
            except FloatingPointError as error:
                raise VerificationError(f"the model gives no finite numbers of a sample: {TOO_LARGE}") from error
            cosines.append(float(vectors[0] @ vectors[1] / np.prod([np.linalg.norm(vector) for vector in vectors])))
        return VectorAgreement(
            reference=self._reference,
            sentences=len(errors),
            hidden_error=float(np.max(errors)),
            cosine=float(np.min(cosines)),
            probability_error=None if self._classifier is None else self._probability_error(self._classifier, ours),
        )

    def _probability_error(self, classifier: Classifier, hidden: Sequence[NDArray[np.float32]]) -> float:
        pairs = zip(hidden, self._probabilities, strict=True)
        return float(np.max([np.abs(labels_of(classifier, found) - expected).max() for found, expected in pairs]))


def labels_of(classifier: Classifier, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
    """Probabilities of labels from hidden states [tokens, width], as a server has them."""
    return classifier.probabilities(classifier.encoding.of(hidden))


class _Reference(Protocol):
    """What vectors are compared with."""

    @property
    def name(self) -> Literal["pytorch", "transformers"]: ...

    def tokens(self, text: str) -> list[int]: ...

    def hidden(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """The last ones [tokens, width]."""

    def probabilities(self, ids: Sequence[int], classifier: Classifier) -> NDArray[np.float32]:
        """Of every label [labels], or of those of every token [tokens, labels]."""


class _PyTorch:
    """The checkpoint's own model, and the library that its tokenizer is of. It has no labels."""

    name: Literal["pytorch"] = "pytorch"

    def __init__(self, checkpoint: EncoderCheckpoint) -> None:
        self._model = checkpoint.model
        self._tokenizer = tokenizers.Tokenizer.from_file(str(checkpoint.folder / checkpoint.tokenizer.file))

    def tokens(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    @torch.no_grad()
    def hidden(self, ids: Sequence[int]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self._model.encode(torch.tensor([ids]), torch.tensor([len(ids)]))[0].numpy()
        return found

    def probabilities(self, ids: Sequence[int], classifier: Classifier) -> NDArray[np.float32]:
        raise AssertionError("its classifier is in no class of transformers")


class _Transformers:
    """The checkpoint, loaded by transformers."""

    name: Literal["transformers"] = "transformers"

    def __init__(self, folder: Path, classifier: Classifier | None) -> None:
        with quiet():
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        kind = transformers.AutoModel if classifier is None else HEADS[classifier.spec.of]
        self._model = open_by_transformers(kind, folder)

    def tokens(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text, truncation=False, padding=False)["input_ids"]
        return ids

    @torch.no_grad()
    def hidden(self, ids: Sequence[int]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self._model.base_model(torch.tensor([ids])).last_hidden_state[0].numpy()
        return found

    @torch.no_grad()
    def probabilities(self, ids: Sequence[int], classifier: Classifier) -> NDArray[np.float32]:
        logits = self._model(torch.tensor([ids])).logits[0]
        found: NDArray[np.float32] = (logits.sigmoid() if classifier.spec.independent else logits.softmax(-1)).numpy()
        return found
