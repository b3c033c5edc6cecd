"""The tensors of the graphs: their names, dtypes and axes.

Names and shapes that are the same for every model stand here alone. What depends on the model is written into the
manifest, see `models.package.declared`: `models.package.derived` has what follows from a shape.

Encoder graph, one pass over padded sources:

    ids      int64 [sentences, source]      lengths  int32 [sentences], tokens of each source before the padding
    hidden   float [sentences, source, width], the last hidden states
    cross_k0, cross_v0, ...  float [sentences, heads, source, head_dim], keys and values of every decoder layer

A recurrent model gives first_h0, ... float [sentences, width], with which the states of its cells begin, and with
attention source_keys and source_values float [sentences, 1, source, width].

One stack for source and target (`models.architectures.prefix`) gives source_self_k0, source_self_v0, ..., shaped like
cross_k0, with which the cache of a hypothesis begins: its positions count the source's tokens.

An encoder alone gives no keys and values, and has no decoder graph. Packed encoder graph, the same over sources that
lie one after another; attention alone is padded, and how sources are packed changes no bit:

    ids      int64 [tokens]       positions  int64 [tokens], 0.. of each source     lengths  int32 [sentences]
    padded   int64 [sentences, source], the token of each place; of padding, any
    places   int64 [tokens], the place of each token
    hidden   float [tokens, width]

The first graph of an encoder alone gives self_query0, self_key0, ... too (`GraphsSpec.encoder_attention`), as the graph
over given targets below.

Decoder graph, one token of each live row:

    ids          int64 [rows]     the token each row produced last
    positions    int32 [rows]     its position: what is cached before it
    total        int32 []         max(positions) + 1
    source_last  int32 [rows]     index of each row's last source token
    source_total int32 []         max(source_last) + 1
    ranks        int64 [k]        only its length is read: how many candidates are wanted of each row
    slots        int64 [total]    0, 1, 2, ...: where the model has relative positions and attention is fused
    candidates   int64 [rows, k]  the k most probable next tokens, best first
    log_probs    fp32 [rows, k]   their log-probabilities
    logits       float [rows, vocabulary, padded]
    cross_query  float [rows, heads * head_dim]   what the last layer compares with the keys of the source, if it does
    cross_scores float [rows, source_total]       the scores of the source, where they are no products with keys

and the cache tensors. A `present` output is bound to the buffer of its `past` input: the graph writes in place.
Tensors of "float" have the package's precision: fp32, fp16 or bf16. The last two outputs are inner values of the graph
anyway: a step to which they are not bound pays nothing for them.

Where the output layer is screened (`GraphsSpec.output_layer`), the decoder has no logits, and gives instead

    certain      bool [rows, 1]        the candidates are proven to be those of all tokens, and the normaliser is one
    normaliser   fp32 [rows, 1]        logarithm of the sum of all exp(logit); NaN: too rough to be used
    hidden       fp32 [rows, width]    what the output layer takes

The graph of logits computes rows whole. Where its log-probabilities are over the decoder's normaliser, they are the
decoder's to the last bit, so that it does not matter which of them a token is from:

    hidden, ranks                      as above
    candidates   int64 [rows, k]       as above
    scores       fp32 [rows, k]        their logits
    normaliser   fp32 [rows, 1]        as above, never NaN
    logits       fp32 [rows, vocabulary, padded]

Two graphs look at given targets (`GraphsSpec.scoring`), without a cache, over all tokens of the vocabulary. The first
is one teacher-forced pass over targets that are padded at their ends, the second the output layer:

    hidden       fp32 [sources, source, width]    what the encoder gave
    lengths      int32 [sources]                  tokens of each source before the padding
    sources      int64 [targets]                  the source of each target; several may have the same
    ids          int64 [targets, target]          what the decoder is fed: the start token, and all but the last token
    states       fp32 [targets, target, width]    of every token, after the last layer
    cross_query0, ...  fp32 [targets, target, heads * head_dim]    what layer 0, ... compares with
    cross_key0, ...    fp32 [sources, heads, source, head_dim]     the keys of the source
    self_query0, self_key0, ...  fp32 [targets, target, heads * head_dim]  what layer 0, ... compares in the target
    self_bias0, ...    fp32 [1, heads, target, target]             what it adds, where positions are relative

    states       fp32 [tokens, width]             as above
    wanted       int64 [tokens]                   the token that came next
    log_probs    fp32 [tokens]                    of that token

One more says where the tokens of a source look in it (`GraphsSpec.source_attention`). It is the encoder again, for
those who want to see that:

    ids, lengths                                  as the encoder's
    attention    fp32 [sentences, layers, heads, source, source]

Of one stack it reads a target too, whose tokens lie behind those of the source, and says the same of all of them:

    ids          int64 [sentences, tokens]        a source, and what is fed for its target behind its last token
    lengths      int32 [sentences]                tokens of each source
    attention    fp32 [sentences, layers, heads, tokens, tokens]
    states       fp32 [sentences, tokens, width]  of every token, after the last layer

A package with a shortlist (`models.package.shortlist`) has a graph of the output layer, which gives rows of itself:

    ids           int64 [tokens]
    output_weight float [tokens, width]     output_bias   float [tokens]

Its decoder graph takes such rows, and what each row may choose of them. The candidates are places too:

    output_weight, output_bias
    allowed       int64 [rows, places]      places of the tokens that a row may have next, then -1s; at least k of both

So a step computes the logits of the tokens that matter to some row. Log-probabilities are over a row's own tokens
alone. Where they are fewer than k, place 0 fills up the candidates, so improbable that no search takes it. `allowed`
belongs to a source: it moves when its row does.

Native graphs (kernels/README.md) have rows in slots, and sources one after another, without padding. Their encoder:

    ids        int64 [tokens]       positions  int32 [tokens], 0.. of each source     lengths  int32 [sentences]
    hidden     fp32 [tokens, width]
    cross      fp32 [tokens, layers * 2 * width], keys of decoder layer 0, values of layer 0, keys of layer 1, ...

Their decoder:

    ids, positions, ranks           as above
    slots           int32 [rows]    where each row's cached target is, or its states
    source_slots    int32 [rows]    where its source is; beams share one
    source_lengths  int32 [rows]    tokens of its source
    allowed         int32 [rows, places]    with a shortlist: token ids of the vocabulary, then -1s
    candidates, log_probs           as above
    hidden          fp32 [rows, width]      what the output layer takes
    cross_query     fp32 [rows, width]
    normaliser      fp32 [rows]             logarithm of the sum of all exp(logit)

and cache tensors, whose first axis is slots. Those of sources are read only. No id fills up the vocabulary. Logits are
what a graph of its own makes of `hidden`: fp32 [rows, vocabulary]. One more gives those of few tokens, to the last bit
as the decoder has them:

    hidden          as above
    tokens          int64 [rows, named]     token ids; negative: none
    logits          fp32 [rows, named]      of none: -inf

A recurrent model whose scores are additive has a native step instead, beside its standard encoder: the decoder graph
above with operators of ours, which only reads the tensors of sources and takes none of their `last` inputs.

Nor does a device step (`GraphsSpec.device_step`), which an fp16 package has besides and which is made for GPUs. Its
rows have slots:

    ids, ranks      as above
    positions       int32 [rows]    what is cached before the token
    slots           int32 [rows]    where each row writes its key and value, at its position
    source_slots    int32 [rows]    where its source is; beams share one
    source_last     int32 [rows]    index of its last source token
    history         int32 [slots, capacity]     of each slot and position before the token's: in whose slot that
                                    hypothesis wrote it. So nothing moves when beams change places
    candidates, log_probs, logits, cross_query      as the standard decoder's

and cache tensors as its own, [slots or source slots, heads, places, head_dim]. Its encoder gets sources one after
another, without padding. Tokens that only fill up a run are sources of their own, of one token each:

    ids             int64 [tokens]
    positions       int32 [tokens]  of each token in its source
    firsts          int32 [tokens]  where its source begins
    lengths         int32 [tokens]  how many tokens that has
    hidden          float [tokens, width]
    cross           float [tokens, layers * 2 * heads * head_dim], keys of decoder layer 0, values of layer 0, ...

A package without it (`NativeStep.encoder`) has its sources encoded by the standard graph.
"""

ENCODER, DECODER, OUTPUT = "encoder.onnx", "decoder.onnx", "output.onnx"
NATIVE_ENCODER, NATIVE_DECODER, NATIVE_NAMED = "native_encoder.onnx", "native_decoder.onnx", "native_named.onnx"
LOGITS_GRAPH = "logits.onnx"
TARGET, LOG_PROBS_GRAPH = "target.onnx", "log_probs.onnx"
SOURCE_ATTENTION = "source_attention.onnx"

PACKED_ENCODER = "packed_encoder.onnx"

ENCODER_INPUTS = ("ids", "lengths")
PACKED_ENCODER_INPUTS = ("ids", "positions", "padded", "places", "lengths")
HIDDEN = "hidden"
NORMALISER = "normaliser"
SCREENED = ("certain", NORMALISER, HIDDEN)
"""What a screened decoder graph gives in place of logits."""
DECODER_INPUTS = ("ids", "positions", "total", "source_last", "source_total", "ranks")
SLOTS = "slots"
DECODER_OUTPUTS = ("candidates", "log_probs")
LOGITS, CROSS_QUERY, CROSS_SCORES = "logits", "cross_query", "cross_scores"
LOGITS_INPUTS = ("hidden", "ranks")
LOGITS_OUTPUTS = ("candidates", "scores", NORMALISER, "logits")
"""Of the graph of logits beside a screened decoder."""
TARGET_INPUTS = (HIDDEN, "lengths", "sources", "ids")
STATES = "states"
ATTENTION = "attention"
STACK_ATTENTION_OUTPUTS = (ATTENTION, STATES)
LOG_PROBS_INPUTS = (STATES, "wanted")
LOG_PROBS = "log_probs"
OUTPUT_INPUTS = ("ids",)
OUTPUT_ROWS = ("output_weight", "output_bias")
"""What the graph of the output layer gives, and what the decoder graph of the same package takes."""
ALLOWED = "allowed"
NO_TOKEN = -1
"""Fills up a row of `allowed`."""

NATIVE_ENCODER_INPUTS = ("ids", "positions", "lengths")
CROSS = "cross"
NATIVE_DECODER_INPUTS = ("ids", "positions", "slots", "source_slots", "source_lengths", "ranks")
NAMED_TOKENS = "tokens"
OPERATORS_VERSION = 2
"""Of the operators that native graphs are made of. A library has those of earlier versions. Version 2 has `Linear`."""

DEVICE_DECODER = "device_decoder.onnx"
DEVICE_DECODER_INPUTS = ("ids", "positions", "slots", "source_slots", "source_last", "history", "ranks")
DEVICE_ENCODER = "device_encoder.onnx"
DEVICE_ENCODER_INPUTS = ("ids", "positions", "firsts", "lengths")
DEVICE_OPERATORS_VERSION = 2
"""Of the operators that a device step is made of, which are a library of their own. Version 2 has linear layers of
ours, those of an encoder, and what foresees searches."""

MAX_CANDIDATES = 64
"""Most candidates a decoder graph gives of a row (fewer where the vocabulary has fewer tokens)."""
