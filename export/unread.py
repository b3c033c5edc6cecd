"""Which keys of a checkpoint's settings are read by nobody: not by transformers, and not here."""

from pathlib import Path

from models.checkpoint import bart_like, encoders, gpt2, marian, modernbert, t5_like
from models.checkpoint.classifiers import HeadConfig
from models.checkpoint.files.keys import OF_GENERATE, UNUSED
from models.checkpoint.files.reading import read_json
from models.checkpoint.generation import NEUTRAL, GenerationSettings
from models.decoding import OPTIONS

MODEL_TYPES = ("marian", "gpt2", *bart_like.FAMILIES, *t5_like.FAMILIES, *encoders.MODEL_TYPES)
"""Of all families."""
OF_GENERATION = frozenset({*OPTIONS, *NEUTRAL, *GenerationSettings.known(), *OF_GENERATE})
"""Keys of generation_config.json. They may be in config.json, too."""


def own_keys(model_type: str) -> frozenset[str]:
    """The keys of a family's config.json that are honoured, or held to a value."""
    if family := encoders.FAMILIES.get(model_type):
        own = encoders.EncoderConfig.known().union((family.keys or {}).values()) - family.unknown
        return own | HeadConfig.known()
    if model_type in t5_like.FAMILIES:
        return t5_like.T5LikeConfig.known() | OF_GENERATION
    if model_type in bart_like.FAMILIES:
        return bart_like.FAMILIES[model_type].settings.known() | OF_GENERATION
    if model_type == modernbert.MODEL_TYPE:
        return modernbert.ModernBertConfig.known()
    return (marian.MarianConfig if model_type == "marian" else gpt2.Gpt2Config).known() | OF_GENERATION


def known_keys(model_type: str) -> frozenset[str]:
    """The same, and those that nothing has to be made of."""
    return own_keys(model_type) | UNUSED


def unread_keys(folder: Path) -> dict[str, list[str]]:
    """By file: keys that transformers does not know, so that whatever they say, `generate` does without.

    Raises CheckpointError.
    """
    config, generation = folder / "config.json", folder / "generation_config.json"
    found = dict[str, list[str]]()
    if config.exists():
        content = read_json(config)
        model_type = content.get("model_type")
        if isinstance(model_type, str) and model_type in MODEL_TYPES:
            found[config.name] = sorted(content.keys() - known_keys(model_type))
    if generation.exists():
        found[generation.name] = sorted(read_json(generation).keys() - OF_GENERATION)
    return {file: keys for file, keys in found.items() if keys}


def unread(folder: Path) -> list[str]:
    """Lines that name settings which nobody reads, so that nothing is left out silently. Raises CheckpointError."""
    return [
        f"{file}: transformers does not read {', '.join(keys)}, and neither does a package"
        for file, keys in unread_keys(folder).items()
    ]
