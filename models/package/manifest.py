"""What manifest.json says of a package."""

from typing import Annotated, Literal

import pydantic.dataclasses
from pydantic import ConfigDict, Field, ValidationError, model_validator

from models.architectures import AnyConfig, key_of
from models.config import Frozen
from models.decoding import OPTIONS, Decoding
from models.encoding import EncodingDefaults
from models.encoding.classifier import ClassifierSpec
from models.package.declared.graphs import FileName, GraphsSpec
from models.tokenizers.spec import TokenizerSpec

FORMAT_VERSION: Literal[2] = 2
WEIGHTS, SHORTLIST = "weights.bin", "shortlist.bin"

MOST_QUOTED = 60
"""Characters of a wrong value that a message repeats."""
TELLING = {"missing", "extra_forbidden", "value_error"}
"""Kinds of faults whose message needs no value, or has it."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class FileEntry(Frozen):
    """A file of the package."""

    sha256: Sha256
    size_bytes: int = Field(ge=0)


class Origin(Frozen):
    """The checkpoint that the package was made from."""

    name: str
    sha256: Sha256
    """Of its weights file."""
    pinned: str | None = None
    """The name that export fetches exactly this checkpoint by: hf:OWNER/NAME@COMMIT or firefox:PAIR@VERSION."""


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid", strict=True))
class GenerationDefaults(Decoding):
    """How targets are chosen where a request does not say: the model's own value of every option, and what is fixed."""

    forced_end_id: int | None = None
    """The token that every target of `max_new_tokens` ends with."""
    forced_begin_id: int | None = None
    """The token that every target begins with, such as that of its language."""
    suppressed_ids: tuple[int, ...] = ()
    """Tokens that are never produced."""

    def decoding(self) -> Decoding:
        """The options alone."""
        return Decoding(**{name: getattr(self, name) for name in OPTIONS})


class TargetLanguage(Frozen):
    """What the decoder of a multilingual model is told of a target language."""

    begin_id: int | None = Field(default=None, ge=0)
    """The token that every target in the language begins with (NLLB, M2M100, mBART-50). None: the model's own."""
    start_id: int | None = Field(default=None, ge=0)
    """What is fed before a target's first token (mBART, PLBart). None: the model's own start token."""


class Measured(Frozen):
    """What was found may be no number, which is too large an error: who judges it says so."""

    model_config = ConfigDict(allow_inf_nan=True)


class StepError(Measured):
    """How far the decoder graph is from the PyTorch model, over one step of a batch."""

    rows: int
    past: int
    """Tokens in the cache before the step; of the longest row where `ragged`."""
    ragged: bool
    """Every row is at a position of its own, with a source of its own length."""
    log_prob_error: float
    """Largest absolute difference of a candidate's log-probability."""
    logit_error: float = 0.0
    """The same, but for what all candidates of a row are off alike."""


class Agreement(Frozen):
    """How many sentences the package translates to exactly the tokens of a reference."""

    reference: Literal["pytorch", "transformers"]
    num_beams: int
    sentences: int
    equal: int


class LayerDrift(Measured):
    """What a layer in 8 bits costs."""

    layer: str
    """Its name in the model."""
    drift: float
    """Of the logits, or of vectors, where this layer alone is as it is in the package."""
    activation_bits: Literal[8, 16, 32]
    """32: the layer stayed fp32, weights included."""


class Quality(Measured):
    """Scores of greedy translations by given references, of sacrebleu."""

    bleu: float
    chrf: float


class Quantization(Measured):
    """How a package came to its 8 bits, and what they cost: its own operators' arithmetic, computed by PyTorch.

    Drift is the standard deviation of what separates logits from those of fp32, but for what is common to a row, on
    fp32's own translations of sample sentences.
    """

    calibration_sha256: Sha256
    """Of the text that activations were calibrated on."""
    calibration_sentences: int
    sentences: int
    """Of the samples."""
    equal: int
    """So many of them are translated to the tokens of fp32."""
    drift: float
    layers: tuple[LayerDrift, ...]
    fp32: Quality | None = None
    """Of the samples, if references were given."""
    int8: Quality | None = None


class VectorQuantization(Measured):
    """The same of an encoder alone, whose vectors are compared with those of fp32. Drift is their angle in radians."""

    calibration_sha256: Sha256
    calibration_sentences: int
    sentences: int
    """Of the samples."""
    cosine: float
    """In their mean."""
    least_cosine: float
    layers: tuple[LayerDrift, ...]


class VectorAgreement(Measured):
    """How near the vectors of sample sentences are to those of a reference, which has its own tokens."""

    reference: Literal["pytorch", "transformers"] = "transformers"
    sentences: int
    hidden_error: float
    """Largest absolute difference of a hidden state."""
    cosine: float
    """Least, of two vectors."""
    probability_error: float | None = None
    """Largest absolute difference of a label's probability. None: there are no labels, or it has no class for them."""


class Certificate(Measured):
    """What export measured before it wrote the package."""

    device: str = "cpu"
    """What ran the graphs."""
    tolerance: float
    """Largest error that would have been accepted."""
    normaliser_tolerance: float = 0.0
    """So much more of what all candidates of a row are off alike: the sum over the vocabulary may be in 8 bits."""
    encoder_error: float
    """Largest absolute difference of a hidden state from the PyTorch model's."""
    score_error: float | None = None
    """Largest absolute difference of a given target token's log-probability. None: the package scores no targets."""
    attention_error: float | None = None
    """Largest absolute difference of where a token looks, from transformers if it has the model. None: unknown."""
    steps: tuple[StepError, ...]
    agreements: tuple[Agreement, ...]
    quantization: Quantization | None = None
    """Of an int8 package."""
    vector_quantization: VectorQuantization | None = None
    """Of an int8 package of an encoder alone."""
    vectors: VectorAgreement | None = None
    """Of an encoder alone."""


class Manifest(Frozen):
    """What manifest.json says."""

    format_version: Literal[2] = FORMAT_VERSION
    name: FileName
    """What requests call the model."""
    model: AnyConfig
    """The architecture. Told to callers; engines read `graphs`."""
    tokenizer: TokenizerSpec
    source_languages: tuple[str, ...]
    """BCP-47 tags."""
    target_languages: tuple[str, ...]
    languages: dict[str, TargetLanguage] = Field(default_factory=dict)
    """By BCP-47 tag, for a decoder that is told. Each is one of `target_languages`."""
    generation: GenerationDefaults
    encoding: EncodingDefaults = EncodingDefaults()
    classifier: ClassifierSpec | None = None
    """What gives labels to texts or tokens, if something does."""
    prompts: dict[str, str] = Field(default_factory=dict)
    """What may be put before a text to translate, by the name that requests use: the prefixes of a model's tasks."""
    prompt: str | None = None
    """The name of the one that is put there where a request does not say."""
    graphs: GraphsSpec
    shortlist: FileName | None = None
    """What each source may become; there is one if there is an output graph."""
    weights: FileName = WEIGHTS
    files: dict[FileName, FileEntry]
    """Every file but the manifest."""
    checkpoint: Origin
    tools: dict[str, str]
    """Versions of the libraries that made it."""
    certificate: Certificate
    native_certificate: Certificate | None = None
    """Of the native graphs."""

    @model_validator(mode="after")
    def _complete(self) -> "Manifest":
        output = None if self.graphs.output is None else self.graphs.output.file
        if (output is None) != (self.shortlist is None):
            raise ValueError(f"graphs.output is {output} and shortlist is {self.shortlist}; both or neither")
        graphs = [graph.file for graph in self.graphs.files]
        used = [*graphs, self.weights, *([self.shortlist] if self.shortlist else []), *self.tokenizer.files]
        heads = [*self.encoding.layers, *(self.classifier.layers if self.classifier else ())]
        used += [dense.file for dense in heads]
        missing = sorted(set(used) - set(self.files))
        if missing:
            raise ValueError(f"files has no entry for {', '.join(missing)}")
        if self.prompt is not None and self.prompt not in self.prompts:
            raise ValueError(f"prompt is {self.prompt!r}; there are {', '.join(self.prompts) or 'none'}")
        if fault := self.encoding.fault(self.model.width):
            raise ValueError(fault)
        if (most := self.encoding.max_tokens) is not None and most > self.model.max_positions:
            raise ValueError(f"encoding.max_tokens is {most}; the model takes {self.model.max_positions}")
        if self.classifier and (fault := self.classifier.fault(self.model.width, self.model.max_positions)):
            raise ValueError(fault)
        self._check_model()
        self._check_generation()
        self._check_languages()
        return self

    def _check_model(self) -> None:
        """Callers are told the one, and engines read the other."""
        vocabulary = self.graphs.vocabulary
        for name, of_graphs in (
            ("source_vocab_size", vocabulary.source_size),
            ("target_vocab_size", vocabulary.target_size),
            ("width", self.graphs.width),
            ("max_positions", self.graphs.max_positions),
        ):
            if (told := getattr(self.model, name)) != of_graphs:
                raise ValueError(f"model.{name} is {told}; the graphs have {of_graphs}")

        if self.graphs.decoder is None and self.graphs.packed_encoder is None:
            raise ValueError("graphs.decoder is null, and so is packed_encoder, which an encoder alone has")

    def _check_generation(self) -> None:
        generation, spec = self.generation, self.graphs
        forced = (generation.forced_begin_id, generation.forced_end_id)
        size = spec.vocabulary.target_size
        for token_id in (*generation.suppressed_ids, *(one for one in forced if one is not None)):
            if not 0 <= token_id < size:
                raise ValueError(f"generation has token {token_id}; the model has {size} target tokens")
        suppressed = set(generation.suppressed_ids) - {spec.vocabulary.end_id}
        if spec.decoder is not None and len(suppressed) + 1 >= spec.most_candidates:  # the end may be barred, too
            raise ValueError(
                f"generation suppresses {len(suppressed)} tokens; of {spec.most_candidates} candidates one must be left"
            )

    def _check_languages(self) -> None:
        for side, tags in (("source", self.source_languages), ("target", self.target_languages)):
            if odd := [tag for tag in tags if not tag.isprintable() or tag != tag.strip() or not tag]:
                raise ValueError(f"{side}_languages has {odd[0]!r}, which is no tag")
        if unknown := sorted(self.languages.keys() - set(self.target_languages)):
            raise ValueError(f"languages has {unknown[0]}; target_languages are {', '.join(self.target_languages)}")
        if self.languages and (silent := sorted(set(self.target_languages) - self.languages.keys())):
            raise ValueError(f"languages has no {silent[0]}, which is one of target_languages")
        size = self.model.target_vocab_size
        for tag, language in self.languages.items():
            for token_id in (language.begin_id, language.start_id):
                if token_id is not None and token_id >= size:
                    raise ValueError(f"languages.{tag} has token {token_id}; the model has {size} target tokens")


def first_fault(error: ValidationError) -> str:
    """The first thing that is wrong, where, and what is there instead."""
    first = error.errors()[0]
    where = key_of(first["loc"])
    said = first["msg"].removeprefix("Value error, ")  # what pydantic puts before a message of our own
    found = repr(first["input"])
    if first["type"] not in TELLING and len(found) <= MOST_QUOTED:
        said += f"; it is {found}"
    return f"{where}: {said}" if where else said
