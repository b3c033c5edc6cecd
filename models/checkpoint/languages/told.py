"""How the decoder of a multilingual model is told what language a target is to be in."""

from collections.abc import Mapping
from pathlib import Path

from models.checkpoint.contents import CheckpointError, Trained
from models.checkpoint.generation import generation_file
from models.checkpoint.tokenizers.found import FoundTokenizer
from models.package.manifest import TargetLanguage
from models.tokenizers.tokenizer_json import TokenizerJsonSpec

MULTILINGUAL = ("m2m_100", "mbart")
"""Tokens of these name languages."""


def told_languages(trained: Trained, family: str, tokens: Mapping[str, int]) -> dict[str, TargetLanguage]:
    """How the decoder is told each language, by BCP-47 tag."""
    starts = _starts_with_language(trained, family)
    return {tag: TargetLanguage(**{"start_id" if starts else "begin_id": token}) for tag, token in tokens.items()}


def check_told(trained: Trained, family: str, tokenizer: FoundTokenizer, folder: Path) -> None:
    """Raises CheckpointError where nothing says what the decoder is fed first, or which language it is to write.

    An mBART-50, whose sources begin with their language, is fed something else before the target's.
    """
    spec = tokenizer.spec
    before = isinstance(spec, TokenizerJsonSpec) and any(it.prefix_ids for it in spec.source_affixes.values())
    if not trained.start_said and (before or not tokenizer.languages):
        raise no_start(folder / "config.json")
    told = trained.generation.forced_begin_id is not None or _starts_with_language(trained, family)
    if family in MULTILINGUAL and not tokenizer.languages and not told:
        raise CheckpointError(
            f"{generation_file(folder)}: forced_bos_token_id is missing; to a {family} model it says the target "
            "language"
        )


def no_start(file: Path) -> CheckpointError:
    """Of a configuration that does not say it."""
    return CheckpointError(f"{file}: decoder_start_token_id is missing; it is what the decoder is fed first")


def _starts_with_language(trained: Trained, family: str) -> bool:
    """The decoders of mBART and PLBart are; that of mBART-50 is fed the end token, and told the language next."""
    return family == "plbart" or (family == "mbart" and trained.config.decoder_start_id != trained.config.end_id)
