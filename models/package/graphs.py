"""What an engine must know of a package's graphs. Export declares it, and an engine reads no architecture besides."""

from collections.abc import Sequence
from itertools import chain
from math import prod
from typing import Annotated, Literal

from pydantic import Field, model_validator

from models.config import Frozen
from models.package.numbers import Precisions
from models.package.precision import AttentionKind, OutputLayer, Precision

NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"
FileName = Annotated[str, Field(pattern=NAME_PATTERN)]
Owner = Literal["hypothesis", "source"]
Axis = Annotated[int, Field(gt=0)] | Literal["rows", "target", "source"]


class CacheTensor(Frozen):
    """A tensor of the running batch, which the decoder graph reads and writes in place."""

    past: str
    """Name of the input that holds what is cached."""
    present: str
    """Name of the output with what is cached after the step. The input's, where the graph only reads the tensor."""
    precision: Precision
    axes: tuple[Axis, ...]
    """"rows" first. One may be "target" or "source": the tensor grows along it with the tokens of a row. Without such
    an axis it is a state, which goes where its hypothesis goes, whole.

    Writing a state in place is safe because the graph reads it only to compute, number by number, what it writes. A
    step that is made twice, or made and not wanted, spoils it."""
    owner: Owner
    """A hypothesis's tensor goes where the hypothesis goes. A source's moves when its row gets another source."""
    start: str | None = None
    """Name of the encoder output that it starts with, whose first axis is sentences. None: zeros."""
    last: str | None = None
    """Name of the input with what it holds of each row's last source token [rows, 1, heads * head_dim].

    GroupQueryAttention always appends one token. Given the last source token again, at the place where it already
    stands, it attends to the source exactly, however long the other rows' sources are.
    """

    @model_validator(mode="after")
    def _consistent(self) -> "CacheTensor":
        if self.axes[:1] != ("rows",) or self.axes.count("rows") > 1:
            raise ValueError(f"{self.past} has the axes {self.axes}; rows must come first, and once")
        if len([axis for axis in self.axes if axis in ("target", "source")]) > 1:
            raise ValueError(f"{self.past} has the axes {self.axes}; it can grow along one of them only")
        if self.last is not None and self.grows != "source":
            raise ValueError(f"{self.past} has {self.last}, and no source axis")
        return self

    @property
    def written(self) -> bool:
        """The graph does more than read it."""
        return self.present != self.past

    @property
    def grows(self) -> Literal["target", "source"] | None:
        """Along what."""
        if "target" in self.axes:
            return "target"
        return "source" if "source" in self.axes else None

    @property
    def continues(self) -> bool:
        """It holds a source's tokens, and then the target's."""
        return self.grows == "target" and self.start is not None

    def places(self, source: int, target: int) -> int:
        """Most that a row needs of the axis along which it grows, with so many tokens of each side; of a state, 1."""
        if self.grows is None:
            return 1
        return source if self.grows == "source" else target + (source if self.continues else 0)

    @property
    def heads(self) -> int:
        """How many a row has for each place along which it grows; of a state, 1."""
        return prod(self._numbers(self.axes[1 : self._place]))

    @property
    def head_dim(self) -> int:
        """Numbers of a head that lie together; of a state, all."""
        return prod(self._numbers(self.axes[self._place :]))

    def shape(self, rows: int, places: int) -> tuple[int, ...]:
        """With so many places along which it grows."""
        return tuple(axis if isinstance(axis, int) else rows if axis == "rows" else places for axis in self.axes)

    @property
    def _place(self) -> int:
        """Index of the axis along which it grows; of a state, the one after the rows."""
        return 1 if self.grows is None else self.axes.index(self.grows)

    @staticmethod
    def _numbers(axes: Sequence[Axis]) -> list[int]:
        return [axis for axis in axes if isinstance(axis, int)]


def alike(tensors: Sequence[CacheTensor]) -> list[tuple[CacheTensor, ...]]:
    """Tensors that are laid out, start and move alike together: an engine keeps them in one block of memory."""
    groups: dict[object, list[CacheTensor]] = {}
    for tensor in tensors:
        begins = tensor.start is None, tensor.last is None
        layout = tensor.precision, tensor.heads, tensor.head_dim
        groups.setdefault((tensor.owner, tensor.grows, begins, layout), []).append(tensor)
    return [tuple(group) for group in groups.values()]


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


class CrossQuery(Frozen):
    """A decoder output that tells where rows look: the last layer's queries to the source [rows, heads * head_dim]."""

    name: str
    keys: str
    """The cache tensor [rows, heads, source, head_dim] that they are compared with."""
    scale: float
    """Of a query's product with a key, before the softmax."""


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
    """A decoder graph with operators of ours that takes the place of the standard one beside the same encoder.

    It has the same tensors, but for those of sources, which it only reads. Rows of a device step have slots, and a
    history that says whose slots their earlier positions are in; rows of the other have none.
    """

    decoder: GraphFile
    operators: int = Field(ge=1)
    """Version of the operators."""
    cache: tuple[CacheTensor, ...]


class SelfAttention(Frozen):
    """Outputs that tell where tokens look among each other, of every layer.

    They are inner values: a run that does not fetch them pays nothing for them.
    """

    layers: tuple[tuple[str, str], ...] = Field(min_length=1)
    """Queries and keys, both fp32 [texts, tokens, heads * head_dim]"""
    biases: tuple[str, ...] = ()
    """What is added to the scores, fp32 [1, heads, tokens, tokens]: one of every layer, one of all, or none."""
    heads: int = Field(gt=0)
    scale: float
    """Of a query's product with a key, before the softmax."""
    causal: bool = False
    """A token looks at itself and those before it, not at all."""

    @property
    def outputs(self) -> list[str]:
        """All of them."""
        return [*chain.from_iterable(self.layers), *self.biases]

    @model_validator(mode="after")
    def _of_layers(self) -> "SelfAttention":
        if len(self.biases) not in {0, 1, len(self.layers)}:
            raise ValueError(
                f"there are {len(self.biases)} biases; {len(self.layers)} layers have one each, one or none"
            )
        return self


class TargetAttention(Frozen):
    """Outputs of the graph over given targets that tell where its tokens look in the source, of every layer.

    They are inner values: a pass that does not fetch them pays nothing for them.
    """

    queries: tuple[str, ...]
    """fp32 [targets, target, heads * head_dim]"""
    keys: tuple[str, ...]
    """fp32 [sources, heads, source, head_dim]"""
    within: SelfAttention | None = None
    """Where they look in the target. None: they do not, or the package is older."""
    heads: int = Field(gt=0)
    scale: float
    """Of a query's product with a key, before the softmax."""

    @property
    def outputs(self) -> list[str]:
        """All of them."""
        return [*self.queries, *self.keys, *(self.within.outputs if self.within else ())]

    @model_validator(mode="after")
    def _paired(self) -> "TargetAttention":
        if len(self.queries) != len(self.keys):
            raise ValueError(f"there are {len(self.queries)} queries and {len(self.keys)} keys; every layer has both")
        return self


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


class Aligner(Frozen):
    """The heads whose attention says which source token a target token comes from: their mean.

    Chosen by names and numbers that translations copy, and so have a known partner.
    """

    layer: int = Field(ge=0)
    """Of the decoder."""
    heads: tuple[int, ...] = Field(min_length=1)
    tokens: int = Field(gt=0)
    """Target tokens of copied names and numbers."""
    right: int = Field(ge=0)
    """So many of them look at their partner most."""


class Probe(Frozen):
    """A known answer: what native graphs must say of a source before they serve."""

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
    """Of the native graphs."""
    vector_probes: tuple[VectorProbe, ...] = ()
    """Of the native graph of an encoder alone."""

    @property
    def files(self) -> tuple[GraphFile, ...]:
        """All graphs that there are."""
        native = () if self.native is None else (self.native.encoder, self.native.decoder, self.native.named)
        steps = tuple(step.decoder for step in (self.native_step, self.device_step) if step is not None)
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
        layers = 0 if self.target_attention is None else len(self.target_attention.queries)
        if self.aligner is not None and self.aligner.layer >= layers:
            raise ValueError(f"aligner.layer is {self.aligner.layer}; the graph over targets tells of {layers} layers")
        for which, there in (("cache", names), ("native cache", native), ("device step's cache", device)):
            if self.cross_query is not None and there is not None and self.cross_query.keys not in there:
                raise ValueError(
                    f"cross_query.keys is {self.cross_query.keys}; the {which} has {', '.join(there) or 'no tensors'}"
                )
        return self
