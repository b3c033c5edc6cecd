"""What a package finds in a text that is an encoder alone."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from engine.devices.session import CPU
from engine.errors import NotFinite
from engine.loading.load import Loadable, open_decoder
from inspection.findings import Classified, Findings, InspectionError, Wanted, source_labels, tokens_of
from models.encoding.classifier import Classifier
from models.package.folder import Package


def inspect_encoder(package: Package, wanted: Wanted) -> Findings:
    """Raises PackageError, TokenizerError, DeviceError, EngineError, InspectionError."""
    spec, tokenizer, unasked = package.manifest.graphs, package.tokenizer(), Wanted(wanted.text)
    names = [field.name for field in fields(wanted)]
    if ignored := [name for name in names if getattr(wanted, name) != getattr(unasked, name)]:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in ignored)
        raise InspectionError(f"{package.manifest.name} is an encoder alone, with no use for {flags}: leave it out")
    if spec.encoder_attention is None:
        raise InspectionError(f"{package.manifest.name} does not tell where tokens look: export it again")
    source_ids = tokens_of(tokenizer, wanted, spec)
    with closing(open_decoder(Loadable.of(package), CPU)) as encoder:
        hidden = encoder.encode([source_ids])[0].hidden().copy()
        attention = encoder.given_targets.source_attention(source_ids)
    source = source_labels(tokenizer, wanted, ends=source_ids[-1] == spec.vocabulary.end_id)
    classifier = package.classifier()
    found = () if classifier is None else _classified(classifier, hidden, source)
    return Findings(
        package=package, wanted=wanted, source=source, hidden=hidden, source_attention=attention, classified=found
    )


def _classified(classifier: Classifier, hidden: NDArray[np.float32], source: Sequence[str]) -> list[Classified]:
    """The labels of the text, or the best one of each token. Raises NotFinite."""
    try:
        probabilities = classifier.probabilities(classifier.encoding.of(hidden))
    except FloatingPointError as error:
        raise NotFinite from error
    if classifier.spec.of == "text":
        return [Classified("the text", one) for one in classifier.best(probabilities, len(probabilities))]
    best = (classifier.best(of_token, 1)[0] for of_token in probabilities)
    return [Classified(token, one) for token, one in zip(source, best, strict=True)]
