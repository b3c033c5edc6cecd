"""Models as Marian NMT writes them, with random weights."""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray

from tests.checkpoints import sentencepiece_model

Tensors = dict[str, NDArray[np.float32]]

INT8, FLOAT16, FLOAT32, INTGEMM8 = 0x101, 0x402, 0x404, 0x4101
PIECES, TARGET_PIECES = 211, 187
PADDING = 24

CONFIGURATION: dict[str, object] = {
    "type": "transformer",
    "dim-vocabs": [PIECES, PIECES],
    "dim-emb": 24,
    "enc-depth": 2,
    "dec-depth": 2,
    "dec-cell": "ssru",
    "layer-normalization": False,
    "transformer-heads": 3,
    "transformer-dim-ffn": 40,
    "transformer-ffn-activation": "relu",
    "transformer-ffn-depth": 2,
    "transformer-decoder-autoreg": "rnn",
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "",
    "transformer-no-projection": False,
    "transformer-tied-layers": [],
    "transformer-guided-alignment-layer": "last",
    "tied-embeddings-all": True,
    "tied-embeddings-src": False,
    "tied-embeddings": False,
    "version": "v1.9.56 94aeaa46 2021-04-28 00:28:35 +0100",
}
"""Firefox's, but smaller."""


@dataclass(frozen=True)
class Item:
    """What a binary file holds under a name."""

    name: str
    type: int
    shape: tuple[int, ...]
    data: bytes


def random_tensors(configuration: Mapping[str, object], seed: int = 7) -> Tensors:
    """The tensors that Marian makes for a configuration, large enough for outputs that differ."""
    shapes = dict(_shapes(configuration))
    generator = np.random.default_rng(seed)
    tensors: Tensors = {}
    for name, shape in shapes.items():
        centre = 1.0 if name.endswith("_ln_scale") else 0.0
        tensors[name] = (centre + generator.normal(scale=0.3, size=shape)).astype(np.float32)
    return tensors


def _shapes(configuration: Mapping[str, object]) -> Iterable[tuple[str, tuple[int, int]]]:
    width, inner = configuration["dim-emb"], configuration["transformer-dim-ffn"]
    encoder, decoder = configuration["enc-depth"], configuration["dec-depth"]
    vocabularies = configuration["dim-vocabs"]
    assert isinstance(width, int) and isinstance(inner, int) and isinstance(encoder, int) and isinstance(decoder, int)
    assert isinstance(vocabularies, list)
    source, target = vocabularies
    shared = configuration["tied-embeddings-all"] or configuration["tied-embeddings-src"]
    yield ("Wemb" if shared else "encoder_Wemb"), (source, width)
    if not shared:
        yield "decoder_Wemb", (target, width)
    if not (configuration["tied-embeddings-all"] or configuration["tied-embeddings"]):
        yield "decoder_ff_logit_out_Wt", (target, width)
    if not configuration.get("output-omit-bias"):
        yield "decoder_ff_logit_out_b", (1, target)
    for layer in range(1, encoder + 1):
        yield from _attention(f"encoder_l{layer}_self", width)
        yield from _feed_forward(f"encoder_l{layer}_ffn", width, inner)
    for layer in range(1, decoder + 1):
        if configuration["transformer-decoder-autoreg"] == "rnn":
            prefix = f"decoder_l{layer}_rnn"
            yield from ((f"{prefix}_W", (width, width)), (f"{prefix}_Wf", (width, width)), (f"{prefix}_bf", (1, width)))
            yield from _norm(f"{prefix}_ffn", width)
        else:
            yield from _attention(f"decoder_l{layer}_self", width)
        yield from _attention(f"decoder_l{layer}_context", width)
        yield from _feed_forward(f"decoder_l{layer}_ffn", width, inner)


def _attention(prefix: str, width: int) -> Iterable[tuple[str, tuple[int, int]]]:
    for part in "qkvo":
        yield f"{prefix}_W{part}", (width, width)
        yield f"{prefix}_b{part}", (1, width)
    yield from _norm(f"{prefix}_Wo", width)


def _feed_forward(prefix: str, width: int, inner: int) -> Iterable[tuple[str, tuple[int, int]]]:
    yield from ((f"{prefix}_W1", (width, inner)), (f"{prefix}_b1", (1, inner)))
    yield from ((f"{prefix}_W2", (inner, width)), (f"{prefix}_b2", (1, width)))
    yield from _norm(f"{prefix}_ffn", width)


def _norm(prefix: str, width: int) -> Iterable[tuple[str, tuple[int, int]]]:
    yield f"{prefix}_ln_scale", (1, width)
    yield f"{prefix}_ln_bias", (1, width)


def float_items(tensors: Tensors, kind: int = FLOAT32) -> list[Item]:
    """Each tensor as it is."""
    dtype = np.dtype("<f2" if kind == FLOAT16 else "<f4")
    return [Item(name, kind, array.shape, array.astype(dtype).tobytes()) for name, array in tensors.items()]


def intgemm8_items(tensors: Tensors) -> list[Item]:
    """Matrices in 8 bits, each with what only products of 8-bit numbers need; the rest as it is."""
    items = []
    for name, array in tensors.items():
        if 1 in array.shape:
            items += float_items({name: array})
            continue
        data, _ = quantise(array if name.endswith("Wemb") else array.T)
        items.append(Item(name, INTGEMM8, array.shape, data + bytes(-len(data) % 256)))
        kind = INTGEMM8 if name.endswith("Wemb") else FLOAT32  # as Firefox's files have it
        items.append(Item(f"{name}_QuantMultA", kind, (1, 1), bytes(256)))
    return items


def quantise(array: NDArray[np.float32]) -> tuple[bytes, NDArray[np.float32]]:
    """The bytes of an intgemm8 matrix, row after row, and the numbers that they stand for."""
    multiplier = np.float32(127 / np.abs(array).max())
    rounded = np.round(array * multiplier).astype(np.int8)
    return rounded.tobytes() + struct.pack("<f", multiplier), rounded.astype(np.float32) / multiplier


def configuration_item(configuration: Mapping[str, object]) -> Item:
    text = yaml.safe_dump(dict(configuration)).encode() + b"\0"
    return Item("special:model.yml", INT8, (len(text),), text)


def binary(items: Iterable[Item], version: int = 1) -> bytes:
    """The content of a .bin file."""
    items = list(items)
    names = [item.name.encode() + b"\0" for item in items]
    header = b"".join(
        struct.pack("<4Q", len(name), item.type, len(item.shape), len(item.data))
        for name, item in zip(names, items, strict=True)
    )
    shapes = b"".join(struct.pack(f"<{len(item.shape)}i", *item.shape) for item in items)
    start = struct.pack("<2Q", version, len(items)) + header + b"".join(names) + shapes
    return start + struct.pack("<Q", PADDING) + bytes(PADDING) + b"".join(item.data for item in items)


def write_npz(file: Path, tensors: Tensors, configuration: Mapping[str, object]) -> None:
    text = np.frombuffer(configuration_item(configuration).data, np.int8)
    np.savez(file, **{"special:model.yml": text}, **tensors)  # type: ignore[arg-type]


def write_model(folder: Path, form: str = "intgemm8", seed: int = 7, **changes: object) -> Path:
    """Writes a folder as Firefox has it: model.enpt.intgemm.alphas.bin, or model.npz, and the vocabularies.

    form: npz, float32, float16 or intgemm8
    changes: keys of the configuration, with _ for -
    """
    folder.mkdir(parents=True)
    configuration = CONFIGURATION | {key.replace("_", "-"): value for key, value in changes.items()}
    tensors = random_tensors(configuration, seed)
    if form == "npz":
        write_npz(folder / "model.npz", tensors, configuration)
    else:
        kinds = {"float32": FLOAT32, "float16": FLOAT16}
        items = float_items(tensors, kinds[form]) if form in kinds else intgemm8_items(tensors)
        data = binary([*items, configuration_item(configuration)])
        (folder / "model.enpt.intgemm.alphas.bin").write_bytes(data)
    if configuration["dim-vocabs"] == [PIECES, PIECES]:
        (folder / "vocab.enpt.spm").write_bytes(sentencepiece_model())
    else:
        (folder / "srcvocab.enpt.spm").write_bytes(sentencepiece_model())
        (folder / "trgvocab.enpt.spm").write_bytes(sentencepiece_model(side=1, pieces=TARGET_PIECES))
    return folder
