"""What the server serves: the facts of a package, and the limits that settings put on it."""

from dataclasses import dataclass, field, replace

from models.config import ModelConfig
from models.decoding import Decoding, OutOfRange, check
from models.encoding import EncodingDefaults
from models.encoding.classifier import Classifier
from models.encoding.dense import Dense
from models.package.folder import Package
from models.package.manifest import Manifest
from models.tokenizers.tokenizer_json import TokenizerJsonSpec
from server.config import ConfigError, Settings

MOST_BEAMS = 16
"""Largest `num_beams` of any model. Wider beams cost more and translate worse (Koehn and Knowles 2017, section 3.6)."""

MOST_SAMPLES = 64
"""Largest `mbr_samples`. Comparing all pairs of them takes a second."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model as callers see it. See `dragoman.v1.Model`."""

    name: str
    source_languages: tuple[str, ...]
    target_languages: tuple[str, ...]
    max_source_tokens: int
    max_new_tokens: int
    max_beams: int
    defaults: Decoding
    width: int
    encoder_layers: int
    decoder_layers: int
    vocabulary_size: int
    precision: str
    execution_provider: str
    package_sha256: str
    checkpoint_sha256: str
    max_contents: int
    max_message_bytes: int
    encoding: EncodingDefaults
    dense: tuple[Dense, ...] = ()
    """Of these defaults."""
    attention: Dense | None = None
    """What scores a hidden state, of the pooling "attention"."""
    classifier: Classifier | None = None
    """What gives labels, if something does."""
    labels_pairs: bool = False
    """To pairs of texts, too."""
    workers: int = 0
    """Of its engine, once it is loaded, as the two below."""
    rows: int = 0
    """Of each worker's running batch."""
    memory_bytes: int = 0
    """That it may come to take."""
    prompts: dict[str, str] = field(default_factory=dict)
    prompt: str | None = None
    scores: bool = False
    """It scores given targets."""
    aligns: bool = False
    """It tells from which source token each target token comes."""
    covers: bool = False
    """It tells how much of a source a target leaves out."""
    attends: bool = False
    """It tells where every head of every layer looks."""
    encoder_heads: int = 0
    decoder_heads: int = 0
    shares_vocabulary: bool = True
    """A token of the source means the same in the target."""

    @property
    def limits(self) -> dict[str, float]:
        """What the ranges of `models.decoding` name."""
        return {
            "max_beams": self.max_beams,
            "max_samples": min(MOST_SAMPLES, max(self.rows, self.max_beams)),
            "max_new_tokens": self.max_new_tokens,
            "vocabulary_size": self.vocabulary_size,
        }


def served_model(package: Package, settings: Settings, execution_provider: str) -> ServedModel:
    """The model of a package under these settings. Raises ConfigError where they ask for more than it has."""
    manifest = package.manifest
    config = manifest.model
    max_new_tokens = _limit("max_new_tokens", settings.max_new_tokens, config.max_positions)
    max_beams = min(MOST_BEAMS, settings.max_rows or MOST_BEAMS)
    return ServedModel(
        name=manifest.name,
        source_languages=manifest.source_languages,
        target_languages=manifest.target_languages,
        max_source_tokens=_limit(
            "max_source_tokens", settings.max_source_tokens or manifest.encoding.max_tokens, config.max_positions
        ),
        max_new_tokens=max_new_tokens,
        max_beams=max_beams,
        defaults=_defaults(manifest, max_new_tokens, max_beams),
        width=config.width,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        vocabulary_size=config.target_vocab_size,
        precision=manifest.graphs.precision.weights,
        execution_provider=execution_provider,
        package_sha256=package.sha256,
        checkpoint_sha256=manifest.checkpoint.sha256,
        max_contents=settings.max_contents,
        max_message_bytes=2 * settings.max_message_bytes,
        encoding=manifest.encoding,
        dense=package.dense(),
        attention=package.scores(),
        classifier=package.classifier(),
        labels_pairs=_labels_pairs(manifest),
        prompts=manifest.prompts,
        prompt=manifest.prompt,
        scores=manifest.graphs.scoring is not None,
        aligns=manifest.graphs.aligner is not None,
        covers=manifest.graphs.target_attention is not None,
        attends=None not in (manifest.graphs.target_attention, manifest.graphs.source_attention),
        encoder_heads=config.encoder_heads if isinstance(config, ModelConfig) else 0,
        decoder_heads=config.decoder_heads if isinstance(config, ModelConfig) else 0,
        shares_vocabulary=config.share_embeddings,
    )


def _limit(name: str, wanted: int | None, most: int) -> int:
    if wanted is not None and wanted > most:
        raise ConfigError(f"{name} is {wanted}; the model takes {most}")
    return most if wanted is None else wanted


def _defaults(manifest: Manifest, max_new_tokens: int, max_beams: int) -> Decoding:
    own = manifest.generation.decoding()
    if own.num_beams > MOST_BEAMS:
        raise ConfigError(
            f"the model's own num_beams is {own.num_beams}; the server takes {MOST_BEAMS}: "
            "export the checkpoint again with fewer in its generation_config.json"
        )
    if own.num_beams > max_beams:
        raise ConfigError(f"max_rows is {max_beams}; the model's own num_beams needs {own.num_beams}")
    defaults = replace(own, max_new_tokens=min(own.max_new_tokens, max_new_tokens))
    try:
        limits = {"max_beams": MOST_BEAMS, "max_samples": MOST_SAMPLES, "max_new_tokens": max_new_tokens}
        check(defaults, {**limits, "vocabulary_size": manifest.model.target_vocab_size})
    except OutOfRange as error:
        raise ConfigError(f"the model's own {error}") from error
    return defaults


def _labels_pairs(manifest: Manifest) -> bool:
    """Whether its head labels texts, of which its tokenizer can join two."""
    tokenizer, head = manifest.tokenizer, manifest.classifier
    joins = isinstance(tokenizer, TokenizerJsonSpec) and tokenizer.affixes.between_ids != ()
    return joins and head is not None and head.of == "text"
