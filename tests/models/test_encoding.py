"""models.encoding, against sentence-transformers' own modules."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from sentence_transformers.sentence_transformer import modules

from models.encoding import Encoding, EncodingDefaults, Numbers, Pooling
from models.encoding.dense import Dense, DenseError, DenseSpec

WIDTH, TOKENS = 12, 7
HIDDEN: NDArray[np.float32] = np.random.default_rng(1).normal(size=(TOKENS, WIDTH)).astype(np.float32)
ONE = [pooling for pooling in Pooling if pooling not in (Pooling.NONE, Pooling.CONCAT)]
THEIRS: Any = modules.Pooling
SCORES = Dense(np.random.default_rng(2).normal(size=(1, WIDTH + 1)).astype(np.float32), "identity")


def attended(hidden: torch.Tensor) -> torch.Tensor:
    """By torch, of hidden states [tokens, width]."""
    linear = torch.nn.Linear(WIDTH, 1)
    linear.load_state_dict({"weight": torch.tensor(SCORES.table[:, :-1]), "bias": torch.tensor(SCORES.table[:, -1])})
    weights: torch.Tensor = linear(hidden).softmax(0).T.detach()
    return weights @ hidden


def pooled(pooling: Pooling) -> NDArray[np.float32]:
    """By torch, as sentence-transformers computes it (`Pooling.forward`)."""
    hidden = torch.from_numpy(HIDDEN)
    features = {"token_embeddings": hidden[None], "attention_mask": torch.ones(1, TOKENS)}
    by_torch: dict[Pooling, Callable[[], Any]] = {
        Pooling.CLS: lambda: hidden[0],
        Pooling.LAST: lambda: hidden[TOKENS - 1],
        Pooling.MEAN: lambda: hidden.sum(0) / TOKENS,
        Pooling.MAX: lambda: hidden.amax(0),
        Pooling.SUM: lambda: hidden.sum(0),
        Pooling.SUM_SQRT: lambda: hidden.sum(0) / torch.tensor(float(TOKENS)).sqrt(),
        Pooling.WEIGHTED_MEAN: lambda: THEIRS(WIDTH, "weightedmean")(features)["sentence_embedding"][0],
        Pooling.ATTENTION: lambda: attended(hidden)[0],
    }
    found: NDArray[np.float32] = by_torch[pooling]().numpy()
    return found


@pytest.mark.parametrize("pooling", ONE)
def test_poolings_are_those_of_sentence_transformers(pooling: Pooling) -> None:
    vectors = Encoding((pooling,), scores=SCORES).of(HIDDEN)
    assert vectors.shape == (WIDTH,) and vectors.scales is None
    assert vectors.data.tolist() == pytest.approx(pooled(pooling).tolist(), rel=1e-6, abs=1e-6)


def test_several_are_one_after_the_other_in_the_order_asked() -> None:
    asked = (Pooling.MAX, Pooling.CLS, Pooling.SUM_SQRT)
    expected = np.concatenate([pooled(pooling) for pooling in asked])
    assert Encoding(asked).of(HIDDEN).data.tolist() == pytest.approx(expected.tolist(), rel=1e-6, abs=1e-6)


def test_a_text_has_the_bits_that_it_has_wherever_it_lies_in_a_pack() -> None:
    encoding, random = Encoding(tuple(ONE), scores=SCORES), np.random.default_rng(3)
    for before in range(20):
        pack = np.concatenate([random.normal(size=(before, WIDTH)).astype(np.float32), HIDDEN, HIDDEN[:2]])
        assert encoding.of(pack[before : before + TOKENS]).data.tobytes() == encoding.of(HIDDEN).data.tobytes()


def test_scores_that_are_large_overflow_nothing() -> None:
    large = Dense(SCORES.table * np.float32(1e4), "identity")
    found = Encoding((Pooling.ATTENTION,), scores=large).of(HIDDEN)
    assert found.data.tobytes() in [state.tobytes() for state in HIDDEN]


def test_none_gives_the_vectors_of_all_tokens() -> None:
    vectors = Encoding((Pooling.NONE,)).of(HIDDEN)
    assert vectors.shape == (TOKENS, WIDTH)
    assert vectors.data.tobytes() == HIDDEN.tobytes()


def test_dimensions_are_cut_before_the_norm() -> None:
    expected = torch.nn.functional.normalize(torch.from_numpy(HIDDEN.mean(0))[:5], dim=0)
    vectors = Encoding(dimensions=5, normalize=True).of(HIDDEN)
    assert vectors.data.tolist() == pytest.approx(expected.tolist(), rel=1e-6)
    of_tokens = Encoding((Pooling.NONE,), dimensions=5, normalize=True).of(HIDDEN)
    np.testing.assert_allclose(np.linalg.norm(of_tokens.data.astype(np.float32), axis=1), np.ones(TOKENS), rtol=1e-6)


def test_a_vector_of_zeros_stays_one() -> None:
    zeros = np.zeros((3, WIDTH), np.float32)
    assert not Encoding(normalize=True).of(zeros).data.any()
    whole = Encoding(numbers=Numbers.INT8).of(zeros)
    assert not whole.data.any() and whole.scales is not None and whole.scales.tolist() == [1.0]


@pytest.mark.parametrize("poolings", [(Pooling.MEAN, Pooling.MAX), (Pooling.NONE,)])
def test_int8_has_a_scale_for_each_vector(poolings: tuple[Pooling, ...]) -> None:
    values = np.atleast_2d(Encoding(poolings).of(HIDDEN).data).astype(np.float32)
    vectors = Encoding(poolings, numbers=Numbers.INT8).of(HIDDEN)
    whole = np.atleast_2d(vectors.data)
    assert whole.dtype == np.int8 and vectors.scales is not None and vectors.scales.shape == (len(values),)
    assert (np.abs(whole).max(axis=1) == 127).all()
    assert (np.abs(whole * vectors.scales[:, None] - values) <= vectors.scales[:, None] * 0.501).all()


def test_binary_is_the_signs_with_the_most_significant_bit_first() -> None:
    vectors = Encoding((Pooling.NONE,), numbers=Numbers.BINARY).of(HIDDEN)
    assert vectors.data.dtype == np.uint8 and vectors.data.shape == (TOKENS, 2) and vectors.shape == (TOKENS, WIDTH)
    for row, hidden in zip(vectors.data.tolist(), HIDDEN.tolist(), strict=True):
        bits = "".join("1" if value > 0 else "0" for value in hidden).ljust(16, "0")
        assert row == [int(bits[:8], 2), int(bits[8:], 2)]


def test_float16_is_the_nearest() -> None:
    vectors = Encoding(numbers=Numbers.FLOAT16).of(HIDDEN)
    assert vectors.data.tobytes() == torch.from_numpy(HIDDEN.mean(0)).half().numpy().tobytes()


@pytest.mark.parametrize("numbers", Numbers)
@pytest.mark.parametrize("poolings", [(Pooling.NONE,), (Pooling.MEAN,), (Pooling.MEAN, Pooling.MAX)])
@pytest.mark.parametrize("dimensions", [None, 3, 9, WIDTH + 1])
def test_the_size_is_known_before(poolings: tuple[Pooling, ...], numbers: Numbers, dimensions: int | None) -> None:
    encoding = Encoding(poolings, dimensions, numbers=numbers)
    vectors = encoding.of(HIDDEN)
    assert encoding.shape(TOKENS, WIDTH) == vectors.shape
    assert encoding.size_bytes(TOKENS, WIDTH) == vectors.data.nbytes


@pytest.mark.parametrize(
    ("hidden", "encoding"),
    [
        (np.full((2, 3), np.nan, np.float32), Encoding(numbers=Numbers.BINARY)),
        (np.full((2, 3), np.inf, np.float32), Encoding()),
        (np.full((2, 3), 70000.0, np.float32), Encoding(numbers=Numbers.FLOAT16)),
    ],
    ids=["NaN", "infinity", "no room in float16"],
)
def test_what_is_not_finite_is_no_vector(hidden: NDArray[np.float32], encoding: Encoding) -> None:
    with pytest.raises(FloatingPointError):
        encoding.of(hidden)


@pytest.mark.parametrize(
    "fields",
    [
        {"poolings": ()},
        {"poolings": ("mean", "mean")},
        {"poolings": ("none", "mean")},
        {"poolings": ("median",)},
        {"poolings": ("attention",)},
        {"poolings": ("concat",)},
        {"dimensions": 0},
        {"prompt": "query"},
    ],
)
def test_defaults_that_make_no_sense_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        EncodingDefaults.model_validate(fields)


def npy(header: str) -> bytes:
    """A file of numpy with this header, and no numbers to speak of."""
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(32)


def npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, np.zeros((2, 4), np.float32))
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        npz(),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1000000000000), }\n"),
        npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({2**70},), }}\n"),
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (2, 4), }\n"),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4"),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }\n")[:-8],
    ],
)
def test_a_file_of_a_layer_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    """Also one whose header tells of more numbers than any memory has room for."""
    (tmp_path / "layer.npy").write_bytes(content)
    with pytest.raises(DenseError, match=r"layer\.npy cannot be read: "):
        Dense.load(tmp_path, DenseSpec(file="layer.npy", inputs=3, outputs=2, activation="identity"))


def test_numbers_of_a_layer_are_its_own_whatever_becomes_of_the_file(tmp_path: Path) -> None:
    SCORES.save(tmp_path, "layer.npy")
    read = Dense.load(tmp_path, DenseSpec(file="layer.npy", inputs=WIDTH, outputs=1, activation="identity"))
    (tmp_path / "layer.npy").write_bytes(bytes((tmp_path / "layer.npy").stat().st_size))
    np.testing.assert_array_equal(read.table, SCORES.table)
