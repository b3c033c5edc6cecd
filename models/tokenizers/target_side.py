"""A tokenizer of targets: tokenizers encode sources only, and what learns or counts from text needs its targets too."""

from pathlib import Path

from models.tokenizers.sentencepiece_pair import SentencePiecePair, SentencePieceSpec
from models.tokenizers.typography import normalization_table


def target_side(folder: Path, spec: SentencePieceSpec) -> SentencePiecePair:
    """Encodes targets as the other does sources. What the vocabulary lacks is replaced there too.

    Raises TokenizerError.
    """
    turned = spec.model_copy(
        update={
            "source_model": spec.target_model,
            "target_model": spec.source_model,
            "vocabulary": spec.target_vocabulary or spec.vocabulary,
            "target_vocabulary": spec.target_vocabulary and spec.vocabulary,
            "normalization": {},
            "target_codes": {},
        }
    )
    table = normalization_table(SentencePiecePair.load(folder, turned))
    return SentencePiecePair.load(folder, turned.model_copy(update={"normalization": table}))
