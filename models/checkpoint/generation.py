"""How Hugging Face's `generate` would choose targets, as a checkpoint sets it."""

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from models.checkpoint.contents import CheckpointError
from models.checkpoint.files.reading import JsonKeys, invalid, parse, read_json
from models.config import ModelShape
from models.decoding import OPTIONS, Decoding, Options, OutOfRange, check
from models.package.manifest import GenerationDefaults
from models.package.signature import MAX_CANDIDATES

GENERATION_CONFIG = "generation_config.json"
MAX_SUPPRESSED = MAX_CANDIDATES // 2
"""A search needs as many candidates more as there are suppressed tokens; the other half is for wide beams."""
NEUTRAL: dict[str, object] = {
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "force_words_ids": None,
    "constraints": None,
    "guidance_scale": 1.0,
    "max_time": None,
    "prompt_lookup_num_tokens": None,
    "assistant_early_exit": None,
    "use_mtp": False,
    "low_memory": False,
    "is_assistant": False,
    "stop_strings": None,
    "penalty_alpha": None,
    "watermarking_config": None,
    "forced_decoder_ids": None,
    "token_healing": False,
    "dola_layers": None,
}
"""Settings that change what is generated and are not supported, and the value that means "off".

Beams in groups are supported where a request wants them. A model has no such default, since `generate`, which a package
is verified by, has them no longer (transformers 5).
"""

ONLY_OURS = (
    "patience",
    "coverage_penalty",
    "max_new_tokens_ratio",
    "exponential_decay_start",
    "return_alternatives",
    "min_alternative_expansion_prob",
    "num_beam_groups",
    "diversity_penalty",
    "target_prefix",
    "prefix_bias_beta",
    "disable_unknown",
    "must_include",
    "must_exclude",
    "seed",
    "mbr_samples",
    "with_tokens",
    "with_alignment",
    "with_attention",
    "retry_on_guard",
)
"""Options that `generate` lacks."""
OTHER_IN_GENERATE = (
    "exponential_decay_length_penalty",
    "bad_words",
    "sequence_bias",
    "suppress_tokens",
    "begin_suppress_tokens",
    "forced_bos_token",
    "stop_strings",
    "top_h",
)
"""Those that it writes in another way."""
WRITTEN = {
    "max_new_tokens": "max_new_tokens or max_length",
    "min_new_tokens": "min_new_tokens or min_length",
    "bad_words": "bad_words_ids",
}
"""The keys that say an option of another name."""
BEFORE_NORMALIZING = (
    "min_new_tokens",
    "exponential_decay_length_penalty",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "encoder_no_repeat_ngram_size",
    "bad_words",
    "sequence_bias",
    "suppress_tokens",
    "begin_suppress_tokens",
)
"""Options after which `renormalize_logits` makes other scores, and so other beams."""


class GenerationSettings(JsonKeys):
    """The supported settings; None is Hugging Face's default."""

    options: Options = Field(default_factory=dict)
    """Those of `models.decoding` that are set. Bad words of a single token are not among them."""
    max_length: int | None = None
    """Counts the decoder's start token."""
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | None = None
    min_length: int | None = None
    """Counts the decoder's start token."""
    min_new_tokens: int | None = None
    """If it is set, `min_length` does not matter."""
    bad_words_ids: list[list[int]] | None = None
    renormalize_logits: bool | None = None
    decoder_start_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    """As config.json says it: of a target, one token is the end."""

    def suppressed_ids(self, end_id: int, file: Path) -> tuple[int, ...]:
        """The bad words, each of a single token. As in `generate`, the end token is not one. Raises CheckpointError."""
        words = [word for word in self.bad_words_ids or [] if len(word) == 1 and word != [end_id]]
        if len(words) > MAX_SUPPRESSED:
            raise CheckpointError(
                f"{file}: bad_words_ids has {len(words)} words of one token; at most {MAX_SUPPRESSED} are supported"
            )
        return tuple(sorted({word[0] for word in words}))

    def defaults_of(self, config: ModelShape, file: Path) -> GenerationDefaults:
        """What a package decodes with where a request says nothing. Raises CheckpointError."""
        self._check_ids(config, file)
        try:
            defaults = self.defaults(config.max_positions, self.suppressed_ids(config.end_id, file))
        except ValidationError as error:
            raise invalid(error, file) from error
        check_defaults(defaults, config, file)
        self._check_normalized(defaults, file)
        if defaults.looks_at_source and not config.share_embeddings:
            raise CheckpointError(
                f"{file}: encoder_repetition_penalty is {defaults.encoder_repetition_penalty} and "
                f"encoder_no_repeat_ngram_size {defaults.encoder_no_repeat_ngram_size}; tokens of the source mean "
                "others in the target, which has a vocabulary of its own: take both out of the file"
            )
        return defaults

    def _check_ids(self, config: ModelShape, file: Path) -> None:
        """Raises CheckpointError for a beginning that cannot be forced, for another end, and for none."""
        if self.eos_token_id is None and file.name == GENERATION_CONFIG:  # config.json has a reader of its own
            raise CheckpointError(
                f"{file}: eos_token_id is missing or null, so that `generate` ends no target; config.json says "
                f"{config.end_id}: write it here, too"
            )
        if self.eos_token_id not in (None, config.end_id, [config.end_id]):
            raise CheckpointError(
                f"{file}: eos_token_id is {self.eos_token_id}; config.json says {config.end_id}, a target's one end"
            )
        if self.forced_bos_token_id == config.end_id:
            raise CheckpointError(f"{file}: forced_bos_token_id is {config.end_id}, the end token: no target has text")

    def _check_normalized(self, defaults: Decoding, file: Path) -> None:
        """Raises CheckpointError where other tokens would share the probability of more than single bad words."""
        neutral = Decoding()
        for name in BEFORE_NORMALIZING if self.renormalize_logits else ():
            if (value := getattr(defaults, name)) != getattr(neutral, name):
                raise CheckpointError(
                    f"{file}: renormalize_logits is true, which is not supported where {WRITTEN.get(name, name)} is "
                    f"{value}: take one of them out of the file"
                )

    def _least(self) -> int:
        """Tokens before an end token may be."""
        if self.min_new_tokens is not None:
            return max(0, self.min_new_tokens)
        return max(0, (self.min_length or 0) - 1)

    def defaults(self, max_positions: int, suppressed_ids: tuple[int, ...]) -> GenerationDefaults:
        """For requests that say nothing else.

        Without any maximum a target may be as long as the model allows, not 20 tokens as in `generate`.
        """
        longest = max_positions if self.max_length is None else self.max_length - 1
        options: Options = {"max_new_tokens": longest} | self.options
        defaults = GenerationDefaults(**options)
        return replace(
            defaults,
            max_new_tokens=min(defaults.max_new_tokens, max_positions),
            forced_end_id=self.forced_eos_token_id,
            forced_begin_id=self.forced_bos_token_id,
            min_new_tokens=self._least(),
            suppressed_ids=suppressed_ids,
        )


def generation_file(folder: Path) -> Path:
    """generation_config.json or, as in `generate`, config.json where there is none."""
    file = folder / GENERATION_CONFIG
    return file if file.exists() else folder / "config.json"


def read_generation(folder: Path) -> GenerationSettings:
    """Reads the settings. Raises CheckpointError for one that is set and not supported."""
    file = generation_file(folder)
    content = read_json(file)
    for key, off in NEUTRAL.items():
        _check_neutral(file, key, content.get(key), off)
    options = {name: content[name] for name in OPTIONS if content.get(name) is not None} | _renamed(content, file)
    return parse(GenerationSettings, content | _forced_begin(content, file) | {"options": options}, file)


def _forced_begin(content: dict[str, Any], file: Path) -> dict[str, Any]:
    """What `force_bos_token_to_be_generated` means to transformers: in config.json alone, and more than another key.

    It is the older way to say forced_bos_token_id, beside which it stands in some files (bart-large-cnn).
    """
    if file.name != "config.json" or not content.get("force_bos_token_to_be_generated"):
        return {}
    if "bos_token_id" not in content:
        raise CheckpointError(f"{file}: bos_token_id is missing; by force_bos_token_to_be_generated targets begin so")
    return {"forced_bos_token_id": content["bos_token_id"]}


def of_generate(decoding: Decoding) -> dict[str, Any]:
    """The keyword arguments of `generate` that mean the same. What only we have is left out, and so is the prefix."""
    same = {name: getattr(decoding, name) for name in OPTIONS if name not in (*ONLY_OURS, *OTHER_IN_GENERATE)}
    factor = decoding.exponential_decay_length_penalty
    written = {
        "bad_words_ids": [list(phrase) for phrase in decoding.bad_words],
        "sequence_bias": dict(decoding.sequence_bias),
        "suppress_tokens": list(decoding.suppress_tokens),
        "begin_suppress_tokens": list(decoding.begin_suppress_tokens),
        "exponential_decay_length_penalty": () if factor == 1 else (decoding.exponential_decay_start, factor),
        "stop_strings": list(decoding.stop_strings),
        "top_h": decoding.top_h,
    }
    # What is left out, `generate` takes from the checkpoint: a padding token among the bad words, for one.
    given = {name: value for name, value in written.items() if value}
    forced = {"forced_bos_token_id": decoding.forced_bos_token[0]} if decoding.forced_bos_token else {}
    return same | given | forced


def _renamed(content: dict[str, Any], file: Path) -> Options:
    """Options that Hugging Face writes in another way. Raises CheckpointError."""
    options: Options = {}
    try:
        if (decay := content.get("exponential_decay_length_penalty")) is not None:
            start, factor = decay
            options |= {"exponential_decay_start": start, "exponential_decay_length_penalty": factor}
        if (biases := content.get("sequence_bias")) is not None:
            options["sequence_bias"] = tuple((tuple(phrase), bias) for phrase, bias in biases)
        for name in ("suppress_tokens", "begin_suppress_tokens"):
            if (tokens := content.get(name)) is not None:
                options[name] = tuple(tokens)
        if longer := [tuple(word) for word in content.get("bad_words_ids") or [] if len(word) > 1]:
            options["bad_words"] = tuple(longer)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{file}: an option is not as `generate` writes it: {error}") from error
    return options


def check_defaults(defaults: GenerationDefaults, config: ModelShape, file: Path) -> None:
    """Raises CheckpointError for what no request may ask for, and for a token that the model has not.

    How many beams there may be, a server says.
    """
    forced = (defaults.forced_begin_id, defaults.forced_end_id)
    for token_id in [*defaults.suppressed_ids, *(token for token in forced if token is not None)]:
        if not 0 <= token_id < config.target_vocab_size:
            raise CheckpointError(f"{file}: token {token_id} is not one of {config.target_vocab_size} target tokens")
    if defaults.do_sample and defaults.num_beams > 1:
        raise CheckpointError(
            f"{file}: do_sample is true and num_beams {defaults.num_beams}: beams are not sampled; take one of them out"
        )
    limits = {"max_beams": inf, "max_samples": inf, "max_new_tokens": config.max_positions}
    try:
        check(defaults, limits | {"vocabulary_size": config.target_vocab_size})
    except OutOfRange as error:
        option, *_ = error.name.split("[")
        written = f", in {WRITTEN[option]}" if option in WRITTEN else ""
        raise CheckpointError(f"{file}: {error}{written}") from error


def _check_neutral(file: Path, key: str, found: Any, off: object) -> None:
    if found is not None and found != off:
        raise CheckpointError(
            f"{file}: {key} is {found!r}, which is not supported; expected {off!r}, or no {key} at all: to decode "
            "without it, take it out of the file"
        )
