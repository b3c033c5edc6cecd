"""What is declared of a model's graphs, as far as it follows from the model's shape."""

from models.architectures.prefix import tensors as prefix
from models.architectures.prefix.config import PrefixConfig
from models.architectures.recurrent import tensors as recurrent
from models.architectures.recurrent.config import RecurrentConfig
from models.config import ModelConfig, ModelShape, RelativeKind
from models.package.declared.attention import SelfAttention, TargetAttention
from models.package.declared.graphs import GraphFile, GraphsSpec, Vocabulary
from models.package.declared.numbers import Precisions
from models.package.declared.precision import NUMBER_BYTES, AttentionKind, Precision
from models.package.declared.tensors import Axis, CacheTensor
from models.package.signature import DECODER, ENCODER, HIDDEN, MAX_CANDIDATES, OUTPUT


def graphs_spec(
    config: ModelShape, precision: Precision, attention: AttentionKind = "fused", shortlist: bool = False
) -> GraphsSpec:
    """What can be said of a model's graphs before they are traced. The bytes of their weights are an estimate."""
    precisions = Precisions.of_all(precision)
    encoder, decoder, output = (size * NUMBER_BYTES[precision] for size in weights(config))
    return GraphsSpec(
        encoder=GraphFile(file=ENCODER, weight_bytes=encoder),
        decoder=GraphFile(file=DECODER, weight_bytes=decoder) if config.decoder_layers else None,
        output=GraphFile(file=OUTPUT, weight_bytes=output) if shortlist else None,
        precision=precisions,
        attention=attention,
        vocabulary=vocabulary(config),
        max_positions=config.max_positions,
        second_positions=isinstance(config, ModelConfig) and config.sentences > 1,
        width=config.width,
        hidden=HIDDEN,
        encoder_pads=isinstance(config, RecurrentConfig),
        encoder_numbers=encoder_numbers(config),
        slots=isinstance(config, ModelConfig) and config.relative != "none" and attention == "fused",
        most_candidates=min(MAX_CANDIDATES, config.target_vocab_size),
        cache=target_tensors(config, precisions.cache) + source_tensors(config, precisions.cache),
    )


def encoder_numbers(config: ModelShape) -> int:
    """How many the encoder keeps of each token while it computes, about."""
    if isinstance(config, RecurrentConfig):
        return recurrent.encoder_numbers(config)
    if isinstance(config, PrefixConfig):
        return prefix.encoder_numbers(config)
    assert isinstance(config, ModelConfig)
    pairs = 0 if config.relative == "none" else 2 * config.encoder_heads
    if config.rotary is not None:  # scores, and what hides those beyond the window
        pairs = config.encoder_heads + 1
    attended, looked = max(config.width, config.inner(config.encoder_heads)), pairs * config.max_positions
    return (4 if config.gated else 2) * config.encoder_ffn + 4 * config.width + 4 * attended + looked


def vocabulary(config: ModelShape) -> Vocabulary:
    """The model's tokens."""
    return Vocabulary(
        source_size=config.source_vocab_size,
        target_size=config.target_vocab_size,
        shared=config.share_embeddings,
        pad_id=config.pad_id,
        end_id=config.end_id,
        start_id=config.decoder_start_id,
        continues=isinstance(config, PrefixConfig),
    )


def weights(config: ModelShape) -> tuple[int, int, int]:
    """How many weights the graphs of encoder, decoder and output layer have, but for biases and norms."""
    if isinstance(config, RecurrentConfig):
        return recurrent.weights(config)
    if isinstance(config, PrefixConfig):
        return prefix.weights(config)
    assert isinstance(config, ModelConfig)
    width, layers = config.width, config.decoder_layers
    encoder_inner, inner = config.inner(config.encoder_heads), config.inner(config.decoder_heads)
    matrices = 3 if config.gated else 2
    if config.shared_layers:
        layers, encoder_layers = min(1, layers), 1
    else:
        encoder_layers = config.encoder_layers
    encoder = encoder_layers * (4 * encoder_inner + matrices * config.encoder_ffn) + 2 * layers * inner
    cell = 2 * width if config.decoder_cell == "ssru" else 4 * inner
    decoder = layers * (cell + 2 * inner + matrices * config.decoder_ffn)
    tables = config.target_vocab_size * (1 if config.tie_output else 2)
    positions = 0 if config.positions == "none" else config.max_positions
    return (
        width * (config.source_vocab_size + positions + encoder),
        width * (tables + positions + decoder),
        width * config.target_vocab_size,
    )


def target_tensors(config: ModelShape, precision: Precision) -> tuple[CacheTensor, ...]:
    """The cache tensors that belong to a hypothesis: key and value of each layer's self-attention, or its states."""
    if isinstance(config, RecurrentConfig):
        return recurrent.target_tensors(config, precision)
    if isinstance(config, PrefixConfig):
        return prefix.target_tensors(config, precision)
    assert isinstance(config, ModelConfig)
    if config.decoder_cell == "ssru":
        axes: tuple[Axis, ...] = ("rows", config.width)
        names = [f"state{layer}" for layer in range(config.decoder_layers)]
    else:
        axes = ("rows", config.decoder_heads, "target", config.decoder_head_dim)
        names = [f"self_{part}{layer}" for layer in range(config.decoder_layers) for part in "kv"]
    return tuple(
        CacheTensor(past=name, present=f"present_{name}", precision=precision, axes=axes, owner="hypothesis")
        for name in names
    )


def source_tensors(config: ModelShape, precision: Precision) -> tuple[CacheTensor, ...]:
    """The cache tensors that belong to a source: key and value of layer 0, key and value of layer 1, ..."""
    if isinstance(config, RecurrentConfig):
        return recurrent.source_tensors(config, precision)
    if isinstance(config, PrefixConfig):
        return ()
    assert isinstance(config, ModelConfig)
    return tuple(
        CacheTensor(
            past=name,
            present=f"present_{name}",
            precision=precision,
            axes=("rows", config.decoder_heads, "source", config.decoder_head_dim),
            owner="source",
            start=name,
            last=f"last_{name}",
        )
        for name in (f"cross_{part}{layer}" for layer in range(config.decoder_layers) for part in "kv")
    )


def native_tensors(config: ModelConfig, precision: Precision) -> tuple[CacheTensor, ...]:
    """The cache tensors of native graphs. precision: of keys and values; states are fp32."""
    states = "fp32" if config.decoder_cell == "ssru" else precision
    sources = source_tensors(config, precision)
    return target_tensors(config, states) + tuple(
        tensor.model_copy(update={"present": tensor.past, "start": None, "last": None}) for tensor in sources
    )


def step_tensors(config: ModelShape, precision: Precision) -> tuple[CacheTensor, ...]:
    """The cache tensors of a step by our own operators, on the CPU or a device: those of sources are read only."""
    return target_tensors(config, precision) + tuple(
        tensor.model_copy(update={"present": tensor.past, "last": None}) for tensor in source_tensors(config, precision)
    )


def target_attention(config: ModelConfig) -> TargetAttention:
    """Of the graph over given targets, the outputs that tell where tokens look."""
    queries, keys = (
        tuple(f"cross_{part}{layer}" for layer in range(config.decoder_layers)) for part in ("query", "key")
    )
    within = None
    if config.decoder_cell == "attention":
        within = _within(config.decoder_layers, config.decoder_heads, config.score_scale, config.relative, causal=True)
    return TargetAttention(
        queries=queries, keys=keys, within=within, heads=config.decoder_heads, scale=config.score_scale
    )


def encoder_attention(config: ModelConfig) -> SelfAttention:
    """Of the encoder's graph, the outputs that tell where tokens look."""
    head_dim = config.inner(config.encoder_heads) // config.encoder_heads
    scale = head_dim**-0.5 if config.scale_scores else 1.0
    return _within(config.encoder_layers, config.encoder_heads, scale, config.relative, causal=False)


def _within(layers: int, heads: int, scale: float, relative: RelativeKind, causal: bool) -> SelfAttention:
    biases = {"none": 0, "shared": 1, "per_layer": layers}[relative]
    return SelfAttention(
        layers=tuple((f"self_query{layer}", f"self_key{layer}") for layer in range(layers)),
        biases=tuple(f"self_bias{layer}" for layer in range(biases)),
        heads=heads,
        scale=scale,
        causal=causal,
    )


def encoder_outputs(spec: GraphsSpec) -> list[str]:
    """The hidden states, and what cache tensors start with."""
    return [spec.hidden, *(tensor.start for tensor in spec.cache if tensor.start is not None)]
