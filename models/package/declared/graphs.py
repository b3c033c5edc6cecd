"""What an engine must know of a package's graphs. Export declares it, and an engine reads no architecture besides."""

from itertools import chain
from typing import Annotated

from pydantic import Field, model_validator

from models.config import Frozen
from models.package.declared.attention import Aligner, CrossQuery, SelfAttention, TargetAttention
from models.package.declared.numbers import Precisions
from models.package.declared.precision import AttentionKind, OutputLayer
from models.package.declared.tensors import CacheTensor

NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"
FileName = Annotated[str, Field(pattern=NAME_PATTERN)]


class GraphFile(Frozen):
    """One of the graphs."""

    file: FileName
    weight_bytes: int = Field(ge=0)
    """Of the weights that a session of it has in memory."""


class Vocabulary(Frozen):
    """The tokens that go in and come out."""

    source_size: int = Field(gt=0)
    target_size: int = Field(gt=0)
    shared: bool
    """A token of the source means the same in the target."""
    pad_id: int = Field(ge=0)
    """Fills up a source."""
    end_id: int = Field(ge=0)
    """Of a source, and of a target."""
    start_id: int = Field(ge=0)
    """What a target starts with."""
    continues: bool = False
    """It starts with its source's last token instead, at the position of that one."""

    @model_validator(mode="after")
    def _known(self) -> "Vocabulary":
        sizes = self.source_size, self.target_size
        # Of two vocabularies either may have the padding.
        for name, size in (("pad_id", max(sizes)), ("end_id", min(sizes)), ("start_id", self.target_size)):
            if getattr(self, name) >= size:
                raise ValueError(f"{name} is {getattr(self, name)}; the vocabulary has {size} tokens")
        return self


class Logits(Frozen):
    """A decoder output with the logits of every row."""

    name: str
    graph: GraphFile | None = None
    """A graph of its own that gives them, `hidden` [rows, width] -> logits [rows, vocabulary], where a decoder's output
    layer looks at few tokens exactly. The decoder gives `hidden` besides."""
    size: int = Field(gt=0)
    """Columns: the vocabulary, and what fills it up. With a shortlist there are as many as rows of the output layer are
    given, and one row more than the batch has."""


class NativeGraphs(Frozen):
    """Graphs of our own operators (kernels/README.md) that compute the same. Rows have slots, and no row ever moves.

    Encoder: ids int64 [tokens], positions int32 [tokens], lengths int32 [sentences], sentences one after another
    -> hidden fp32 [tokens, width], cross fp32 [tokens, layers * 2 * width]: keys, values of layer 0, of layer 1, ...

    Decoder: ids int64 [rows], positions int32 [rows], slots int32 [rows], source_slots int32 [rows],
    source_lengths int32 [rows], ranks int64 [k], with a shortlist allowed int32 [rows, places] (token ids, then -1s),
    and the cache tensors -> candidates, log_probs, the present ones of hypotheses, hidden fp32 [rows, width] (what the
    output layer takes), cross_query fp32 [rows, width]. The last two are inner values: unbound, they cost nothing.
    """

    encoder: GraphFile
    """Of an encoder alone, it has no `cross`."""
    decoder: GraphFile | None = None
    """None: the model is an encoder alone."""
    named: GraphFile | None = None
    """Logits of named tokens: `hidden` [rows, width], tokens int64 [rows, named] -> logits [rows, named]. None: the
    package is older, or an encoder alone."""
    operators: int = Field(ge=1)
    """Version of the operators."""
    cache: tuple[CacheTensor, ...]
    """The first axis is slots. Those of sources are inputs only."""


class NativeStep(Frozen):
    """A decoder graph with operators of ours that takes the place of the standard one.

    It has the same tensors, but for those of sources, which it only reads. Rows of a device step have slots, and a
    history that says whose slots their earlier positions are in; rows of the other have none.
    """

    decoder: GraphFile
    encoder: GraphFile | None = None
    """Of a device step: the encoder over sources that lie one after another. None: the standard encoder stands beside
    the step, because the model has something that ours cannot, or the package is older."""
    operators: int = Field(ge=1)
    """Version of the operators."""
    cache: tuple[CacheTensor, ...]

    @property
    def files(self) -> tuple[GraphFile, ...]:
        """Its graphs."""
        return (self.decoder,) if self.encoder is None else (self.encoder, self.decoder)


class Scoring(Frozen):
    """Graphs that look at given targets, see `models.package.signature`."""

    target: GraphFile
    log_probs: GraphFile
    attention: TargetAttention | None = None
    """None: the package is older."""

    @property
    def files(self) -> tuple[GraphFile, GraphFile]:
        """Both."""
        return self.target, self.log_probs


class Probe(Frozen):
    """A known answer: what graphs must say of a source before they serve (standard ones, how it begins) and after."""

    source_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    score: float
    """Of greedy search, the sum of log-probabilities."""


class VectorProbe(Frozen):
    """The same of an encoder alone."""

    source_ids: tuple[int, ...]
    numbers: tuple[float, ...] = Field(min_length=1)
    """The first of the mean of the source's hidden states."""


class GraphsSpec(Frozen):
    """What an engine must know of the graphs. Names and shapes that never change are in `models.package.signature`."""

    encoder: GraphFile
    packed_encoder: GraphFile | None = None
    """The encoder over sources that lie one after another, for the CPU."""
    decoder: GraphFile | None
    """None: the model is an encoder alone."""
    output: GraphFile | None = None
    """Of the output layer; there is one if there is a shortlist."""
    precision: Precisions
    attention: AttentionKind
    output_layer: OutputLayer = "full"
    """Of the decoder graph of standard operators."""
    vocabulary: Vocabulary
    max_positions: int = Field(gt=1)
    """Most tokens of a source, and of a target."""
    second_positions: bool = False
    """Tokens behind the first end token of a source, which are a second sentence, count their positions from
    `max_positions` on."""
    width: int = Field(gt=0)
    """Numbers of a hidden state, and of a row of the output layer."""
    hidden: str
    """The encoder output with the last hidden states [sentences, source, width]."""
    encoder_pads: bool = False
    """The padding of a source changes no bit of what the encoder gives, so that sources of any lengths run together: it
    is recurrent. False: it is not, or the package is older."""
    encoder_numbers: int = Field(ge=0)
    """How many the encoder keeps of each token while it computes, about."""
    most_candidates: int = Field(gt=0)
    """Of a row, that the decoder graph finds."""
    scoring: Scoring | None = None
    """None: the package is older, or an encoder alone."""
    source_attention: GraphFile | None = None
    """Where the tokens of a source look in it; of one stack, those of a target behind it too. None: as above."""
    encoder_attention: SelfAttention | None = None
    """The same of a source by outputs of the graph `encoder`: of an encoder alone, and of one stack that is older.
    None: another."""
    aligner: Aligner | None = None
    """None: no head of the model aligns well enough, or the package is older."""
    logits: Logits | None = None
    cross_query: CrossQuery | None = None
    cross_scores: str | None = None
    """In its place, where the decoder's scores of the source are no products: an output with those themselves, of one
    head and before their softmax [rows, longest source]."""
    slots: bool = False
    """The decoder takes `slots`, see `models.package.signature`: it has relative positions."""
    cache: tuple[CacheTensor, ...]
    native: NativeGraphs | None = None
    native_step: NativeStep | None = None
    """Of a recurrent model. None: another, or the package is older."""
    device_step: NativeStep | None = None
    """Of a Transformer in fp16, for GPUs. None: another, its export had no such operators, or the package is older."""
    probes: tuple[Probe, ...] = ()
    """Of the native graphs; of the standard ones where there are no others."""
    vector_probes: tuple[VectorProbe, ...] = ()
    """The same of an encoder alone."""

    def computes_as(self, other: "GraphsSpec") -> bool:
        """Whether a step of the other one is as much work: it may have other weights, and so other answers."""
        answers: dict[str, object] = {"probes": (), "vector_probes": ()}
        return self.model_copy(update=answers) == other.model_copy(update=answers)

    @property
    def files(self) -> tuple[GraphFile, ...]:
        """All graphs that there are."""
        native = () if self.native is None else (self.native.encoder, self.native.decoder, self.native.named)
        steps = tuple(file for step in (self.native_step, self.device_step) if step is not None for file in step.files)
        logits = None if self.logits is None else self.logits.graph
        scoring = () if self.scoring is None else self.scoring.files
        encoders = self.encoder, self.packed_encoder, self.source_attention
        graphs = *encoders, self.decoder, *scoring, self.output, logits, *native, *steps
        return tuple(graph for graph in graphs if graph is not None)

    @property
    def target_attention(self) -> TargetAttention | None:
        """What tells where given targets look."""
        return None if self.scoring is None else self.scoring.attention

    @property
    def reads_on(self) -> bool:
        """It is one stack, and `source_attention` tells where given targets look in it."""
        return self.vocabulary.continues and self.source_attention is not None

    @property
    def query_numbers(self) -> int:
        """Columns of the queries to the source."""
        keys = None if self.cross_query is None else self.cross_query.keys
        return next((tensor.heads * tensor.head_dim for tensor in self.cache if tensor.past == keys), self.width)

    @model_validator(mode="after")
    def _consistent(self) -> "GraphsSpec":
        starts = [tensor.start for tensor in self.cache if tensor.start is not None]
        names = [*(tensor.past for tensor in self.cache), *(tensor.last for tensor in self.cache if tensor.last)]
        native = None if self.native is None else [tensor.past for tensor in self.native.cache]
        device = None if self.device_step is None else [tensor.past for tensor in self.device_step.cache]
        for given in (starts, names, native or [], device or []):
            if len(set(given)) < len(given):
                raise ValueError(f"a name stands twice among {', '.join(given)}")
        if self.most_candidates > self.vocabulary.target_size:
            raise ValueError(
                f"most_candidates is {self.most_candidates}; there are {self.vocabulary.target_size} target tokens"
            )
        self._check_aligner()
        self._check_probes()
        for which, there in (("cache", names), ("native cache", native), ("device step's cache", device)):
            if self.cross_query is not None and there is not None and self.cross_query.keys not in there:
                raise ValueError(
                    f"cross_query.keys is {self.cross_query.keys}; the {which} has {', '.join(there) or 'no tensors'}"
                )
        return self

    def _check_aligner(self) -> None:
        if self.aligner is None:
            return
        told = self.target_attention
        layers, heads = (0, 0) if told is None else (len(told.queries), told.heads)
        if self.aligner.layer >= layers:
            raise ValueError(f"aligner.layer is {self.aligner.layer}; the graph over targets tells of {layers} layers")
        for head in self.aligner.heads:
            if not 0 <= head < heads:
                raise ValueError(f"aligner.heads has {head}; the graph over targets tells of {heads} heads, from 0 on")

    def _check_probes(self) -> None:
        sources = [probe.source_ids for probe in self.probes] + [probe.source_ids for probe in self.vector_probes]
        targets = [probe.token_ids for probe in self.probes]
        sizes = self.vocabulary.source_size, self.vocabulary.target_size
        for side, texts, size in zip(("source", "target"), (sources, targets), sizes, strict=True):
            if not all(texts):
                raise ValueError(f"a probe has no {side} tokens")
            for token_id in chain.from_iterable(texts):
                if not 0 <= token_id < size:
                    raise ValueError(f"a probe has token {token_id}; the model has {size} {side} tokens")
        for token_ids in targets:
            if token_ids[-1] != self.vocabulary.end_id:
                raise ValueError(f"vocabulary.end_id is {self.vocabulary.end_id}; a probe ends with {token_ids[-1]}")
        if (most := max((len(probe.numbers) for probe in self.vector_probes), default=0)) > self.width:
            raise ValueError(f"a probe has {most} numbers; a vector has {self.width}")
        if (longest := max(map(len, (*sources, *targets)), default=0)) > self.max_positions:
            raise ValueError(f"a probe has {longest} tokens; the model takes {self.max_positions}")
