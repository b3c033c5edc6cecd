"""Holds the graphs of an encoder alone to its PyTorch model, and its vectors to those of transformers."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from engine.cpu.encoder import CpuEncoder
from engine.devices.session import CPU
from export.verification.compare_numbers import encoder_error, random_sources
from export.verification.reference import quiet
from export.verification.tolerances import TOLERANCES
from export.verification.verify import VerificationError, most_tokens
from models.checkpoint.encoders import EncoderCheckpoint
from models.encoding import Encoding
from models.encoding.classifier import Classifier
from models.package.graph_files import GraphFiles
from models.package.manifest import Certificate, VectorAgreement
from models.tokenizers.tokenizer_json import TokenizerJson
from models.transformer import Transformer

COSINE = 0.99999
"""Least that is accepted, of a sample sentence's two vectors."""
PROBABILITY = 1e-4
"""Largest difference that is accepted, of a label's probability."""
HEADS = {
    "text": transformers.AutoModelForSequenceClassification,
    "tokens": transformers.AutoModelForTokenClassification,
}
"""By what a classifier labels."""


def verify_vectors(checkpoint: EncoderCheckpoint, graphs: GraphFiles, texts: Sequence[str]) -> Certificate:
    """Raises VerificationError."""
    encoder = CpuEncoder(graphs, checkpoint.config.max_positions)
    tolerance = TOLERANCES["fp32"].error
    errors = encoder_error(checkpoint.model, graphs, CPU), packed_error(checkpoint.model, encoder)
    agreement = compare_vectors(checkpoint, encoder, texts)
    worst = float(np.max([*errors, agreement.hidden_error]))
    problems = []
    if not worst <= tolerance:  # NaN is above it, too
        problems.append(f"hidden states differ by {worst:.3g}; at most {tolerance:g} is accepted")
    if not agreement.cosine >= COSINE:
        problems.append(
            f"a vector's cosine to that of transformers is {agreement.cosine:.7g}; expected {COSINE} or more"
        )
    if agreement.probability_error is not None and not agreement.probability_error <= PROBABILITY:
        problems.append(
            f"a label's probability differs from that of transformers by {agreement.probability_error:.3g}; "
            f"at most {PROBABILITY:g} is accepted"
        )
    if problems:
        raise VerificationError("\n  ".join(["the exported graphs differ from the checkpoint:", *problems]))
    return Certificate(
        device=CPU.kind, tolerance=tolerance, encoder_error=max(errors), steps=(), agreements=(), vectors=agreement
    )


@torch.no_grad()
def packed_error(model: Transformer, encoder: CpuEncoder) -> float:
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


def compare_vectors(checkpoint: EncoderCheckpoint, encoder: CpuEncoder, texts: Sequence[str]) -> VectorAgreement:
    """Against transformers' own tokenizer and model. Raises VerificationError where tokens differ."""
    ours = TokenizerJson.load(checkpoint.folder, checkpoint.tokenizer)
    theirs = _Reference(checkpoint.folder, checkpoint.classifier)
    own, classifier = checkpoint.encoding, checkpoint.classifier
    encoding = Encoding(own.poolings, own.dimensions, own.normalize, dense=checkpoint.dense)
    most = own.max_tokens or most_tokens(checkpoint.config.max_positions)
    errors, cosines, apart = [], [], []
    for text in texts:
        ids = ours.encode(text)
        if ids != (expected := theirs.tokens(text)):
            raise VerificationError(f"{text!r} has the tokens {ids}; transformers' tokenizer has {expected}")
        if len(ids) > most:
            continue
        found, hidden = encoder.encode([ids])[0].hidden(), theirs.hidden(ids)
        errors.append(np.abs(found - hidden).max())
        vectors = [encoding.of(states).data.astype(np.float64).ravel() for states in (found, hidden)]
        cosines.append(float(vectors[0] @ vectors[1] / np.prod([np.linalg.norm(vector) for vector in vectors])))
        if classifier is not None:
            apart.append(np.abs(labels_of(classifier, found) - theirs.probabilities(ids, classifier)).max())
    if not errors:
        raise VerificationError(f"no sample sentence has at most {most} tokens; give shorter ones with --samples")
    return VectorAgreement(
        sentences=len(errors),
        hidden_error=float(np.max(errors)),
        cosine=float(np.min(cosines)),
        probability_error=float(np.max(apart)) if apart else None,
    )


def labels_of(classifier: Classifier, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
    """Probabilities of labels from hidden states [tokens, width], as a server has them."""
    return classifier.probabilities(classifier.encoding.of(hidden))


class _Reference:
    """The checkpoint, loaded by transformers."""

    def __init__(self, folder: Path, classifier: Classifier | None) -> None:
        with quiet():
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
            kind = transformers.AutoModel if classifier is None else HEADS[classifier.spec.of]
            model = kind.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
            self._model = model.eval()

    def tokens(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text, truncation=False, padding=False)["input_ids"]
        return ids

    @torch.no_grad()
    def hidden(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """The last ones [tokens, width]."""
        found: NDArray[np.float32] = self._model.base_model(torch.tensor([ids])).last_hidden_state[0].numpy()
        return found

    @torch.no_grad()
    def probabilities(self, ids: Sequence[int], classifier: Classifier) -> NDArray[np.float32]:
        """Of every label [labels], or of those of every token [tokens, labels]."""
        logits = self._model(torch.tensor([ids])).logits[0]
        found: NDArray[np.float32] = (logits.sigmoid() if classifier.spec.independent else logits.softmax(-1)).numpy()
        return found
