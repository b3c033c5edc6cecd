"""Whatever is wrong with a model of Marian NMT, or not supported, is said by name."""

import io
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.checkpoint import CheckpointError, load_checkpoint
from models.checkpoint.marian_nmt.file import read_marian_file
from tests.checkpoints import sentencepiece_model
from tests.models.checkpoint.marian.marian_nmt import (
    CONFIGURATION,
    INT8,
    INTGEMM8,
    PIECES,
    TARGET_PIECES,
    Item,
    binary,
    configuration_item,
    float_items,
    intgemm8_items,
    random_tensors,
    write_model,
    write_npz,
)
from tests.models.checkpoint.refusal import refusal

MODEL = "model.enpt.intgemm.alphas.bin"
MATRIX = "decoder_l1_rnn_Wf"


def items() -> list[Item]:
    return [*intgemm8_items(random_tensors(CONFIGURATION)), configuration_item(CONFIGURATION)]


def changed(name: str, **changes: Any) -> bytes:
    """A binary file of which one item is another one."""
    return binary(replace(item, **changes) if item.name == name else item for item in items())


def without(name: str) -> bytes:
    return binary(item for item in items() if item.name != name)


def configured(**changes: object) -> bytes:
    """A binary file with the tensors of CONFIGURATION, but another configuration. None removes a key."""
    content = CONFIGURATION | {key.replace("_", "-"): value for key, value in changes.items()}
    kept = {key: value for key, value in content.items() if value is not None}
    return binary([*items()[:-1], configuration_item(kept)])


def with_text(text: bytes) -> bytes:
    return binary([*items()[:-1], Item("special:model.yml", INT8, (len(text),), text)])


def with_multiplier(value: float) -> bytes:
    (item,) = (item for item in items() if item.name == MATRIX)
    size = 24 * 24
    return changed(MATRIX, data=item.data[:size] + struct.pack("<f", value) + item.data[size + 4 :])


WHOLE = binary(items())
FILES: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "empty": (b"", ("is cut short: the header takes 16 bytes, and 0 are left",)),
    "another format": (
        b"PK\x03\x04" + bytes(60),
        ("is not a Marian binary model: its version is 67324752; expected 1",),
    ),
    "another version": (binary(items(), version=2), ("its version is 2; expected 1",)),
    "more items than bytes": (struct.pack("<2Q", 1, 2**60), ("cut short", f"the header of {2**60} items")),
    "cut in the names": (WHOLE[:4000], ("is cut short", "are left")),
    "cut in the data": (WHOLE[:-1], ("is cut short: the data of special:model.yml takes",)),
    "too long": (WHOLE + b"\0", ("1 bytes follow its last item",)),
    "a name twice": (binary([*items(), items()[0]]), ("items share", "expected a name for each")),
    "a name of noise": (WHOLE.replace(b"decoder_l1_rnn_Wf\0", b"decoder_l1_rnn_\xff\xfe\0"), ("an item's name is b'",)),
    "tiled for AVX2": (
        changed(MATRIX, type=0x11001),
        (MATRIX, "intgemm8avx2", "supported: float16, float32, intgemm8"),
    ),
    "tiled for VNNI": (changed(MATRIX, type=0x13001), ("intgemm8avx512vnni", ".npz")),
    "packed by FBGEMM": (changed(MATRIX, type=0x1801), ("packed8avx2",)),
    "16 bits": (changed(MATRIX, type=0x4102), ("intgemm16",)),
    "an unknown type": (changed(MATRIX, type=0x99), (f"tensor {MATRIX} is of type 0x99",)),
    "less data than the shape needs": (
        changed("decoder_l1_rnn_bf", shape=(1, 25)),
        ("decoder_l1_rnn_bf has 96 bytes of data; its shape [1, 25] needs 100",),
    ),
    "less data than 8 bits need": (changed(MATRIX, data=bytes(24 * 24)), (f"{MATRIX} has 576 bytes", "needs 580")),
    "no size": (changed(MATRIX, shape=(-1, 24)), (f"{MATRIX} has shape [-1, 24]; expected positive sizes",)),
    "no shape": (changed(MATRIX, shape=()), (f"{MATRIX} has shape []",)),
    "no multiplier": (with_multiplier(0.0), (f"{MATRIX} has the multiplier 0.0; expected a positive number",)),
    "a multiplier that is no number": (with_multiplier(float("nan")), ("has the multiplier nan",)),
    "a tensor missing": (
        without("encoder_l2_ffn_W1"),
        ("tensor encoder_l2_ffn_W1 is missing; expected one of shape [24, 40]",),
    ),
    "a tensor of another shape": (
        changed("encoder_l1_ffn_W2", shape=(20, 48)),
        ("tensor encoder_l1_ffn_W2 has shape [20, 48]; expected [40, 24]",),
    ),
    "a tensor too many": (
        binary([*items(), *float_items({"encoder_emb_ln_scale": np.ones((1, 24), np.float32)})]),
        ("the model that its configuration describes has no tensor encoder_emb_ln_scale",),
    ),
    "no configuration": (without("special:model.yml"), ("has no special:model.yml",)),
    "a configuration of noise": (with_text(b"\xff\xff\xff"), ("special:model.yml is not YAML",)),
    "a deep configuration": (with_text(b"[" * 10_000), ("special:model.yml is not YAML",)),
    "a configuration cut short": (with_text(b"type: [transformer"), ("special:model.yml is not YAML",)),
    "a configuration that runs code": (
        with_text(b"!!python/object/apply:os.system [exit]"),
        ("special:model.yml is not YAML", "could not determine a constructor"),
    ),
    "a configuration that is a list": (
        with_text(b"- transformer"),
        ("is not a YAML mapping, but begins with \"['transf",),
    ),
    "a key missing": (configured(dim_emb=None), ("special:model.yml: dim-emb is missing",)),
    "a recurrent model": (configured(type="s2s"), ("type is 's2s'", "'transformer'")),
    "average attention": (
        configured(transformer_decoder_autoreg="average-attention"),
        ("'average-attention'", "'rnn'"),
    ),
    "another cell": (configured(dec_cell="gru"), ("dec-cell is 'gru'; expected 'ssru'",)),
    "a normalised cell": (configured(layer_normalization=True), ("dec-cell is 'ssru' with layer-normalization",)),
    "pre-norm": (configured(transformer_preprocess="n"), ("transformer-preprocess is 'n'",)),
    "no residual": (configured(transformer_postprocess="dn"), ("transformer-postprocess is 'dn'", "'dan'")),
    "normalised embeddings": (configured(transformer_postprocess_emb="nd"), ("transformer-postprocess-emb is 'nd'",)),
    "a norm on top": (configured(transformer_postprocess_top="n"), ("transformer-postprocess-top is 'n'",)),
    "an approximation of gelu": (
        configured(transformer_ffn_activation="gelu"),
        ("transformer-ffn-activation is 'gelu'",),
    ),
    "a deep feed-forward layer": (configured(transformer_ffn_depth=3), ("transformer-ffn-depth is 3",)),
    "learned positions": (
        configured(transformer_train_position_embeddings=True),
        ("transformer-train-position-embeddings is True",),
    ),
    "tied layers": (configured(transformer_tied_layers=[1, 1]), ("transformer-tied-layers is [1, 1]",)),
    "from right to left": (configured(right_left=True), ("right-left is True",)),
    "factors": (configured(lemma_dim_emb=64), ("lemma-dim-emb is 64",)),
    "three vocabularies": (configured(dim_vocabs=[PIECES] * 3), ("special:model.yml: dim-vocabs",)),
    "heads that do not divide": (configured(transformer_heads=5), ("width 24 is not a multiple of 5 heads",)),
    "an odd width": (configured(dim_emb=25), ("dim-emb is 25", "multiple of 2")),
}

FOLDERS: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "no model": (
        lambda folder: (folder / MODEL).unlink(),
        ("has no config.json (Hugging Face) and no model (*.bin or",),
    ),
    "a packed model": (
        lambda folder: (folder / MODEL).rename(folder / f"{MODEL}.gz"),
        ("no model", "unpack the .gz files first"),
    ),
    "two models": (
        lambda folder: (folder / "model.npz").touch(),
        (f"has 2 files where one is expected, {MODEL}, model.npz: leave only one",),
    ),
    "no vocabulary": (lambda folder: (folder / "vocab.enpt.spm").unlink(), ("has no vocabulary (*.spm",)),
    "two vocabularies": (
        lambda folder: (folder / "vocab.spm").touch(),
        ("has 2 files where one is expected, vocab.enpt.spm, vocab.spm",),
    ),
    "two shortlists": (
        lambda folder: [(folder / f"lex.{number}.bin").write_bytes(b"") for number in (50, 100)],
        ("has 2 files where one is expected, lex.100.bin, lex.50.bin",),
    ),
    "an empty vocabulary": (lambda folder: (folder / "vocab.enpt.spm").write_bytes(b""), ("vocab.enpt.spm is empty",)),
    "a vocabulary of noise": (
        lambda folder: (folder / "vocab.enpt.spm").write_bytes(b"\xff" * 40),
        ("vocab.enpt.spm is not a SentencePiece model",),
    ),
    "a vocabulary of another size": (
        lambda folder: (folder / "vocab.enpt.spm").write_bytes(sentencepiece_model(side=1, pieces=187)),
        ("vocab.enpt.spm has 187 pieces; the model has 211 (dim-vocabs)",),
    ),
    "a model that is a folder": (
        lambda folder: (folder / MODEL).replace(folder / "moved").with_name(MODEL).symlink_to(folder),
        (f"{MODEL} cannot be read",),
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


@pytest.mark.parametrize(("data", "said"), FILES.values(), ids=FILES.keys())
def test_a_file_that_cannot_be_used(folder: Path, data: bytes, said: tuple[str, ...]) -> None:
    (folder / MODEL).write_bytes(data)
    message = refusal(folder)
    for part in said:
        assert part in message


@pytest.mark.parametrize(("change", "said"), FOLDERS.values(), ids=FOLDERS.keys())
def test_a_folder_that_cannot_be_used(folder: Path, change: Callable[[Path], object], said: tuple[str, ...]) -> None:
    change(folder)
    message = refusal(folder)
    for part in said:
        assert part in message


@pytest.mark.parametrize("name", [MODEL, "vocab.enpt.spm"])
def test_what_git_lfs_has_not_fetched(folder: Path, name: str) -> None:
    (folder / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 9\n")
    assert f"{name} stands for a file that Git LFS has not fetched: run `git lfs pull` there" in refusal(folder)


def test_a_vocabulary_without_an_end(folder: Path) -> None:
    (folder / "vocab.enpt.spm").write_bytes(sentencepiece_model(end=-1))
    assert "vocab.enpt.spm has no end token" in refusal(folder)


def npz(**arrays: Any) -> bytes:
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is not a whole .npz file"),
        (b"no archive", "is not a whole .npz file: it is no archive, or has more than numbers"),
        (npz(Wemb=np.ones(3))[:-40], "is not a whole .npz file"),
        (npz(Wemb=np.array([{}], object)), "is not a whole .npz file: it is no archive, or has more than numbers"),
        (npz(Wemb=np.ones(3, np.float32)), "has no special:model.yml"),
    ],
)
def test_an_archive_that_cannot_be_used(folder: Path, data: bytes, said: str) -> None:
    (folder / MODEL).unlink()
    (folder / "model.npz").write_bytes(data)
    assert said in refusal(folder)


def test_an_archive_of_integers(folder: Path) -> None:
    (folder / MODEL).unlink()
    tensors: dict[str, Any] = {**random_tensors(CONFIGURATION), MATRIX: np.ones((24, 24), np.int64)}
    write_npz(folder / "model.npz", tensors, CONFIGURATION)
    assert f"tensor {MATRIX} is int64; expected floating-point numbers" in refusal(folder)


@given(position=st.integers(0, 5000), value=st.integers(0, 255))
def test_a_changed_byte_of_the_header_is_refused_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, position: int, value: int
) -> None:
    file = tmp_path_factory.mktemp("bytes") / "model.bin"
    file.write_bytes(WHOLE[:position] + bytes([value]) + WHOLE[position + 1 :])
    try:
        configuration, tensors = read_marian_file(file)
    except CheckpointError as error:
        assert str(file) in str(error)
    else:
        assert isinstance(configuration, dict)
        assert tensors.left


def test_nothing_reads_an_activation_scale(folder: Path) -> None:
    """They have types and sizes of their own."""
    (folder / MODEL).write_bytes(changed(f"{MATRIX}_QuantMultA", type=0x99, shape=(0,)))
    load_checkpoint(folder)
    assert INTGEMM8 in {item.type for item in items() if item.name.endswith("_QuantMultA")}


@pytest.mark.parametrize("changes", [{}, {"dim_vocabs": [PIECES, TARGET_PIECES], "tied_embeddings_all": False}])
def test_case_that_marian_alone_writes_as_pieces_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", **changes)
    load_checkpoint(folder)
    *_, file = sorted(folder.glob("*.spm"))
    file.write_bytes(file.read_bytes() + b"\x1a\x02\x38\x01")  # NormalizerSpec.encode_case
    with pytest.raises(CheckpointError, match=f"{file.name} has encode_case of Marian's own SentencePiece"):
        load_checkpoint(folder)
