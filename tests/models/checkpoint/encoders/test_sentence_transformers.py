"""models.checkpoint.sentence_transformers: vectors are its own, and what it has besides is refused."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from models.checkpoint import CheckpointError
from models.checkpoint.encoders import load
from models.encoding import Encoding, Pooling
from models.tokenizers.tokenizer_json import TokenizerJson
from tests.checkpoints import edit_json, flores
from tests.models.checkpoint.encoders.saved import WIDTH, WIDTHS, Saved


def test_a_folder_of_sentence_transformers_says_how_vectors_are_made(saved: Saved) -> None:
    pooling = {"word_embedding_dimension": WIDTH, "pooling_mode_cls_token": True, "pooling_mode_max_tokens": True}
    saved.sentences(
        ["Transformer", "Pooling", "Normalize"],
        pooling,
        sentence_bert_config={"max_seq_length": 20, "do_lower_case": False},
        config_sentence_transformers={
            "prompts": {"query": "query: ", "document": ""},
            "default_prompt_name": "query",
            "truncate_dim": 8,
        },
    )
    encoding = load(saved.folder).encoding
    assert encoding.poolings == (Pooling.CLS, Pooling.MAX)
    assert (encoding.normalize, encoding.dimensions, encoding.max_tokens) == (True, 8, 20)
    assert (encoding.prompts, encoding.prompt) == ({"query": "query: "}, "query")


@pytest.mark.parametrize("name", ["roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"])
def test_settings_of_old_are_in_files_of_other_names(name: str, saved: Saved) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    files = {f"sentence_{name}_config": {"max_seq_length": 21}}
    saved.sentences(["Transformer", "Pooling"], {"pooling_mode": "mean", "embedding_dimension": WIDTH}, **files)
    theirs = sentence_transformers.SentenceTransformer(str(saved.folder), device="cpu")
    assert load(saved.folder).encoding.max_tokens == theirs.max_seq_length == 21


@pytest.mark.parametrize(("longest", "said", "taken"), [(21, None, 21), (21, 30, 30), (10**30, None, None)])
def test_a_tokenizer_may_say_how_long_texts_are(
    longest: int, said: int | None, taken: int | None, saved: Saved
) -> None:
    """sentence-transformers 6 writes it nowhere else."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    files = {} if said is None else {"sentence_bert_config": {"max_seq_length": said}}
    saved.sentences(["Transformer", "Pooling"], {"pooling_mode": "mean", "embedding_dimension": WIDTH}, **files)
    edit_json(saved.folder / "tokenizer_config.json", model_max_length=longest)
    theirs = sentence_transformers.SentenceTransformer(str(saved.folder), device="cpu")
    found = load(saved.folder)
    assert found.encoding.max_tokens == taken
    assert (taken or found.config.max_positions) == theirs.max_seq_length


@pytest.mark.parametrize("normalize", [False, True])
def test_vectors_of_dense_modules_are_those_of_sentence_transformers(saved: Saved, normalize: bool) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    names = ["Transformer", "Pooling", "Dense", "Dense", *(["Normalize"] if normalize else [])]
    saved.sentences(names, {"pooling_mode": ["mean", "max"], "embedding_dimension": WIDTH})
    last = saved.folder / "3_More"
    saved.dense(last, WIDTHS[1], 11, bias=False, activation_function="torch.nn.modules.linear.Identity")
    save_file({"linear.weight": torch.randn(11, WIDTHS[1])}, last / "model.safetensors")
    checkpoint = load(saved.folder)
    own = checkpoint.encoding
    encoding = Encoding(own.poolings, own.dimensions, own.normalize, dense=checkpoint.dense)
    texts = [english for english, _ in flores()[300:330] if len(english) < 60]
    tokenizer = TokenizerJson.load(saved.folder, checkpoint.tokenizer)
    with torch.no_grad():
        found = [
            encoding.of(checkpoint.model.encode(torch.tensor([ids]), torch.tensor([len(ids)]))[0].numpy()).data
            for ids in map(tokenizer.encode, texts)
        ]
    expected = sentence_transformers.SentenceTransformer(str(saved.folder), device="cpu").encode(texts, batch_size=1)
    assert expected.shape == (len(texts), 11)
    np.testing.assert_allclose(np.stack(found), expected, atol=1e-4, rtol=1e-4)


def attentive(saved: Saved, tensors: dict[str, torch.Tensor], names: Sequence[str] = (), width: int = WIDTH) -> None:
    """Makes it a folder whose Pooling has weights of its own."""
    pooling = {"pooling_mode": ["mean", "attention"], "embedding_dimension": width}
    saved.sentences(["Transformer", "Pooling", *names], pooling)
    save_file(tensors, saved.folder / "1_Pooling" / "model.safetensors")


@pytest.mark.parametrize("bias", [False, True])
def test_a_pooling_may_have_weights_of_its_own(saved: Saved, bias: bool) -> None:
    linear = torch.nn.Linear(WIDTH, 1, bias=bias)
    attentive(saved, {f"linear.{name}": tensor for name, tensor in linear.state_dict().items()}, ["Dense"])
    checkpoint = load(saved.folder)
    hidden = torch.randn(7, WIDTH)
    assert checkpoint.encoding.offered[-1] is Pooling.ATTENTION and checkpoint.scores is not None
    found = Encoding((Pooling.ATTENTION,), scores=checkpoint.scores).of(hidden.numpy()).data
    with torch.no_grad():
        expected = (linear(hidden).softmax(0) * hidden).sum(0)
    np.testing.assert_allclose(found.astype(np.float32), expected.numpy(), atol=1e-6)
    assert len(checkpoint.vectors.of(hidden.numpy()).data) == WIDTHS[1]


@pytest.mark.parametrize(
    ("tensors", "width", "told"),
    [
        ({"linear.bias": (1,)}, WIDTH, "tensor linear.weight is missing; expected one of shape [1, 36]"),
        ({"linear.weight": (2, WIDTH)}, WIDTH, "linear.weight has shape [2, 36]; expected [1, 36]"),
        ({"linear.weight": (1, WIDTH), "query": (3,)}, WIDTH, "a Pooling with attention has no tensor query"),
        ({"linear.weight": (1, 35)}, 35, "scores.npy has the weights [1, 35]; what scores a hidden state has [1, 36]"),
        ({"linear.weight": (1, WIDTH)}, 0, "embedding_dimension is 0"),
    ],
)
def test_weights_that_score_no_hidden_state_are_refused(
    tensors: dict[str, tuple[int, ...]], width: int, told: str, saved: Saved
) -> None:
    attentive(saved, {name: torch.ones(shape) for name, shape in tensors.items()}, width=width)
    with pytest.raises(CheckpointError) as caught:
        load(saved.folder)
    assert told in str(caught.value)


def test_a_pooling_may_have_a_name_in_place_of_flags(saved: Saved) -> None:
    saved.sentences(["Transformer", "Pooling"], {"pooling_mode": ["lasttoken", "weightedmean"]})
    assert load(saved.folder).encoding.poolings == (Pooling.LAST, Pooling.WEIGHTED_MEAN)


def test_the_name_of_a_pooling_goes_before_flags(saved: Saved) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    pooling = {"pooling_mode": "cls", "pooling_mode_mean_tokens": True, "embedding_dimension": WIDTH}
    saved.sentences(["Transformer", "Pooling"], pooling)
    theirs = sentence_transformers.SentenceTransformer(str(saved.folder), device="cpu")
    assert (load(saved.folder).encoding.poolings, theirs[1].pooling_mode) == ((Pooling.CLS,), "cls")


@pytest.mark.parametrize(
    ("names", "pooling", "files", "told"),
    [
        (["Transformer", "Pooling", "LSTM"], {}, {}, "the modules are Transformer, Pooling, LSTM; expected"),
        (
            ["Transformer", "Pooling", "Dense"],
            {"pooling_mode": "mean"},
            {},
            "in_features of Dense is 72; the poolings give 36 values",
        ),
        (["WordEmbeddings", "Pooling"], {}, {}, "the modules are WordEmbeddings, Pooling; expected"),
        (["Transformer", "Pooling"], {}, {}, "no pooling of pooling_mode_cls_token, "),
        (["Transformer"], {}, {}, "the modules are Transformer; expected"),
        (["Transformer", "Pooling"], {"pooling_mode": "median"}, {}, "pooling_mode is 'median'"),
        (["Transformer", "Pooling"], {"pooling_mode": 5}, {}, "pooling_mode is 5"),
        (
            ["Transformer", "Pooling"],
            {"pooling_mode": "mean"},
            {"config_sentence_transformers": {"prompts": {"query": "Q: "}, "default_prompt_name": "document"}},
            "default_prompt_name is 'document'; the prompts are query",
        ),
        (
            ["Transformer", "Pooling"],
            {"pooling_mode_median_tokens": True},
            {},
            "pooling_mode_median_tokens is true",
        ),
        (["Transformer", "Pooling"], {"pooling_mode": "mean", "include_prompt": False}, {}, "include_prompt is False"),
        (
            ["Transformer", "Pooling"],
            {"pooling_mode": "mean"},
            {"sentence_bert_config": {"max_seq_length": 51}},
            "max_seq_length is 51; the model has 50 positions",
        ),
    ],
)
def test_what_sentence_transformers_has_besides_is_refused(
    names: list[str], pooling: dict[str, object], files: dict[str, dict[str, object]], told: str, saved: Saved
) -> None:
    saved.sentences(names, pooling, **files)
    with pytest.raises(CheckpointError) as caught:
        load(saved.folder)
    assert told in str(caught.value)
