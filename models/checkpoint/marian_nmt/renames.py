"""Where each tensor of a Marian NMT model belongs.

Matrices are [inputs, outputs], but those of vocabularies [tokens, width]; vectors are [1, outputs]. Layers are counted
from 1.
"""

from models.checkpoint.files.renames import Rename
from models.checkpoint.marian_nmt.configuration import MarianNmtConfig


def renames(marian: MarianNmtConfig) -> list[Rename]:
    """Where each tensor belongs."""
    width = marian.dim_emb
    keys_values = [f"decoder_l{layer + 1}_context_W{part}" for layer in range(marian.dec_depth) for part in "kv"]
    return [
        *tables(marian),
        *(rename for layer in range(marian.enc_depth) for rename in encoder_layer(layer, marian)),
        *(rename for layer in range(marian.dec_depth) for rename in decoder_layer(layer, marian)),
        *affine("cross_kv", width, *keys_values),
    ]


def tables(marian: MarianNmtConfig) -> list[Rename]:
    """The embeddings and the output projection, each where it is not another one."""
    source, target = ((size, marian.dim_emb) for size in marian.dim_vocabs)
    shared = marian.share_embeddings
    found = [Rename("source_embedding", ("Wemb" if shared else "encoder_Wemb",), source)]
    if not shared:
        found.append(Rename("target_embedding", ("decoder_Wemb",), target))
    if not marian.tie_output:
        found.append(Rename("output_weight", ("decoder_ff_logit_out_Wt",), target))
    if not marian.output_omit_bias:
        found.append(Rename("output_bias", ("decoder_ff_logit_out_b",), (1, target[0])))
    return found


def encoder_layer(index: int, marian: MarianNmtConfig) -> list[Rename]:
    """Self-attention and feed-forward."""
    ours, theirs = f"encoder.{index}", f"encoder_l{index + 1}"
    return [
        *self_attention(ours, theirs, marian.dim_emb),
        *feed_forward(ours, theirs, marian.dim_emb, marian.transformer_dim_ffn),
    ]


def decoder_layer(index: int, marian: MarianNmtConfig) -> list[Rename]:
    """Self-attention or the recurrence, attention to the source but for its keys and values, and feed-forward."""
    ours, theirs, width = f"decoder.{index}", f"decoder_l{index + 1}", marian.dim_emb
    recurrent = marian.transformer_decoder_autoreg == "rnn"
    return [
        *(recurrence(ours, theirs, width) if recurrent else self_attention(ours, theirs, width)),
        *affine(f"{ours}.cross.query", width, f"{theirs}_context_Wq"),
        *affine(f"{ours}.cross.out", width, f"{theirs}_context_Wo"),
        *norm(f"{ours}.cross.residual.norm", width, f"{theirs}_context_Wo"),
        *feed_forward(ours, theirs, width, marian.decoder_ffn),
    ]


def self_attention(ours: str, theirs: str, width: int) -> list[Rename]:
    """Attention within one side."""
    return [
        *affine(f"{ours}.attention.qkv", width, *(f"{theirs}_self_W{part}" for part in "qkv")),
        *affine(f"{ours}.attention.out", width, f"{theirs}_self_Wo"),
        *norm(f"{ours}.attention.residual.norm", width, f"{theirs}_self_Wo"),
    ]


def recurrence(ours: str, theirs: str, width: int) -> list[Rename]:
    """The SSRU. Its norm has the name of a feed-forward layer's."""
    return [
        *affine(f"{ours}.recurrence.forget", width, f"{theirs}_rnn_Wf"),
        Rename(f"{ours}.recurrence.candidate.weight", (f"{theirs}_rnn_W",), transposed=True),
        *norm(f"{ours}.recurrence.residual.norm", width, f"{theirs}_rnn_ffn"),
    ]


def feed_forward(ours: str, theirs: str, width: int, inner: int) -> list[Rename]:
    """Both matrices."""
    return [
        *affine(f"{ours}.feed_forward.up", inner, f"{theirs}_ffn_W1"),
        *affine(f"{ours}.feed_forward.down", width, f"{theirs}_ffn_W2"),
        *norm(f"{ours}.feed_forward.residual.norm", width, f"{theirs}_ffn_ffn"),
    ]


def affine(target: str, size: int, *matrices: str) -> list[Rename]:
    """A linear layer of `size` outputs for each matrix; the bias of encoder_l1_self_Wq is encoder_l1_self_bq."""
    biases = tuple("_b".join(matrix.rsplit("_W", 1)) for matrix in matrices)
    return [
        Rename(f"{target}.weight", matrices, transposed=True),
        Rename(f"{target}.bias", biases, (1, size)),
    ]


def norm(target: str, size: int, prefix: str) -> list[Rename]:
    """A layer norm."""
    return [
        Rename(f"{target}.weight", (f"{prefix}_ln_scale",), (1, size)),
        Rename(f"{target}.bias", (f"{prefix}_ln_bias",), (1, size)),
    ]
