"""What a server says of itself and of its models."""

from dataclasses import dataclass, field
from enum import Enum

from dragoman.results.embedding import EncodingDefaults
from dragoman.v1.decoding_options import Decoding


class Health(Enum):
    """What a server says about one of its services."""

    UNKNOWN = "UNKNOWN"
    SERVING = "SERVING"
    NOT_SERVING = "NOT_SERVING"


@dataclass(frozen=True, slots=True)
class Model:
    """A model of a server, and its limits."""

    name: str
    source_languages: tuple[str, ...]
    """BCP-47 codes it translates from."""
    target_languages: tuple[str, ...]
    """BCP-47 codes it translates into."""
    max_source_tokens: int
    """Most tokens of a text, the end token included."""
    max_new_tokens: int
    """Most tokens of a translation, the end token included."""
    max_beams: int
    """Largest `num_beams`."""
    default_decoding: Decoding
    """What is used where a call sets nothing."""
    width: int
    """Size of the hidden states, and of embeddings."""
    encoder_layers: int
    decoder_layers: int
    vocabulary_size: int
    """Target tokens the model knows."""
    precision: str
    """Numbers the weights are stored in: "fp32"."""
    execution_provider: str
    """ONNX Runtime execution provider that runs it."""
    package_sha256: str
    """SHA-256 of the package's manifest, lower-case hexadecimal."""
    checkpoint_sha256: str
    """SHA-256 of the checkpoint's weights file, lower-case hexadecimal."""
    max_contents: int
    """Most texts of a request. 0: the server does not say."""
    tasks: tuple[str, ...]
    """What it does: "translate", "encode". Empty: the server does not say."""
    default_encoding: EncodingDefaults
    """What `encode` does where a call sets nothing."""
    state: str
    """Whether it takes calls: "serving", "stopped". "unspecified": the server does not say."""
    workers: int
    """Engine threads that decode it. 0: the server does not say."""
    rows: int
    """Rows of the running batch of each of them. 0: the server does not say."""
    memory_bytes: int
    """Memory that it may come to take. 0: the server does not say."""
    prompts: dict[str, str] = field(hash=False)
    """What `translate` may put before a text, by the name that calls use."""
    prompt: str
    """The name of the one that is put there where a call does not say. Empty: none."""
    aligns: bool
    """Whether `with_alignment` may be asked for."""
    attends: bool
    """Whether `with_attention` may be asked for."""
    labels: tuple[str, ...]
    """What `classify` may find. Empty: it does not classify."""
    labels_tokens: bool
    """`classify` labels the tokens of a text, not the text."""
    labels_pairs: bool
    """`classify` takes `second` texts."""
    server_version: str
    """Version of the server. Empty: it does not say."""


@dataclass(frozen=True, slots=True)
class ShadowReport:
    """What a new version answered to a share of the live requests, beside what callers got."""

    compared: int
    """Texts that both have answered."""
    equal: int
    """Those whose translations were equal."""
    score_difference: float
    """Largest difference of two scores of equal translations."""
    slowdown: float
    """Time that the new version takes, for that of the former one."""
    dropped: int
    """Texts that were not compared, because the server was busy."""


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What came of a reload."""

    model: Model
    """As it is served now."""
    former_package_sha256: str
    """What was served before. The model's own: nothing is new, and nothing was done."""
    shadow: ShadowReport | None
    """None: the new version was not compared with the former one."""

    @property
    def changed(self) -> bool:
        """Another package is served."""
        return self.former_package_sha256 != self.model.package_sha256
