"""models.checkpoint.encoders and sentence_transformers: hidden states are transformers', and the rest is refused."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AutoModel,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    CamembertConfig,
    CamembertModel,
    DistilBertConfig,
    DistilBertModel,
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertModel,
    MPNetConfig,
    MPNetModel,
    RobertaConfig,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
)

from models.checkpoint import CheckpointError, load_checkpoint
from models.checkpoint.encoders import is_encoder, load
from models.encoding import Encoding, Pooling
from models.tokenizers.tokenizer_json import TokenizerJson
from tests.checkpoints import flores

PIECES, WIDTH = 300, 36
WIDTHS = 72, 20
"""Of a Dense module: two poolings, and what becomes of them."""
SHAPE: dict[str, Any] = {
    "vocab_size": PIECES,
    "hidden_size": WIDTH,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 56,
    "max_position_embeddings": 50,
}


def bert(**more: Any) -> BertConfig:
    return BertConfig(**SHAPE, **more)


def modernbert(**more: Any) -> ModernBertConfig:
    """Of five layers the first and the fourth see all of a text, the others five tokens."""
    shape = SHAPE | {"num_attention_heads": 3, "num_hidden_layers": 5}
    special = dict.fromkeys(("eos_token_id", "bos_token_id", "cls_token_id", "sep_token_id"), 3)
    return ModernBertConfig(**shape, local_attention=5, pad_token_id=0, **special, **more)


FAMILIES: dict[str, Callable[[], Any]] = {
    "bert": lambda: BertModel(bert(layer_norm_eps=1e-7)),
    "bert, relu": lambda: BertModel(bert(hidden_act="relu", type_vocab_size=3)),
    "bert with a head": lambda: BertForMaskedLM(bert()),
    "roberta": lambda: RobertaModel(RobertaConfig(**SHAPE, pad_token_id=1, type_vocab_size=1)),
    "xlm-roberta with a head": lambda: XLMRobertaForMaskedLM(XLMRobertaConfig(**SHAPE, pad_token_id=1)),
    "camembert": lambda: CamembertModel(CamembertConfig(**SHAPE, pad_token_id=1)),
    "mpnet": lambda: MPNetModel(MPNetConfig(**SHAPE, pad_token_id=1)),
    "modernbert": lambda: ModernBertModel(modernbert()),
    "modernbert with a head and biases": lambda: ModernBertForMaskedLM(
        modernbert(norm_bias=True, attention_bias=True, mlp_bias=True, hidden_activation="silu")
    ),
    "distilbert": lambda: DistilBertModel(
        DistilBertConfig(vocab_size=PIECES, dim=WIDTH, n_layers=2, n_heads=3, hidden_dim=40, max_position_embeddings=44)
    ),
}


@dataclass(frozen=True)
class Saved:
    folder: Path

    def config(self, **changes: object) -> None:
        """Changes config.json; None takes a key out."""
        file = self.folder / "config.json"
        content = json.loads(file.read_text()) | changes
        file.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))

    def sentences(self, names: list[str], pooling: Mapping[str, object], **files: Mapping[str, object]) -> None:
        """Makes it a folder of sentence-transformers."""
        paths = ["", "1_Pooling", "2_Normalize", "3_More", "4_More"]
        modules = [
            {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{name}"}
            for index, (path, name) in enumerate(zip(paths, names, strict=False))
        ]
        (self.folder / "modules.json").write_text(json.dumps(modules))
        (self.folder / "1_Pooling").mkdir()
        (self.folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
        for index, name in enumerate(names):
            if name == "Dense":
                self.dense(self.folder / paths[index])
        for name, content in files.items():
            (self.folder / f"{name}.json").write_text(json.dumps(content))

    def dense(self, folder: Path, inputs: int = WIDTHS[0], outputs: int = WIDTHS[1], **changes: object) -> None:
        """Writes a Dense module of random numbers, as sentence-transformers does."""
        folder.mkdir(exist_ok=True)
        activation = "torch.nn.modules.activation.Tanh"
        content = {"in_features": inputs, "out_features": outputs, "bias": True, "activation_function": activation}
        (folder / "config.json").write_text(json.dumps(content | changes))
        tensors = {"linear.weight": torch.randn(outputs, inputs) * 0.2, "linear.bias": torch.randn(outputs) * 0.2}
        save_file(tensors, folder / "model.safetensors")


def wordpiece() -> Tokenizer:
    """A small one of BERT's kind, trained on English."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokenizer.train_from_iterator(
        [english for english, _ in flores()[:200]], trainers.WordPieceTrainer(vocab_size=PIECES, special_tokens=special)
    )
    around = [(token, tokenizer.token_to_id(token)) for token in special[2:]]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=around
    )
    return tokenizer


def write(folder: Path, model: Any) -> Saved:
    """Random weights, norms and biases off 1 and 0, large enough to tell layers apart."""
    torch.manual_seed(9)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder)
    wordpiece().save(str(folder / "tokenizer.json"))
    return Saved(folder)


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    return write(tmp_path / "tiny", BertModel(bert()))


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_hidden_states_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    saved = write(tmp_path / "tiny", FAMILIES[family]())
    assert is_encoder(saved.folder)
    checkpoint = load(saved.folder)
    theirs = AutoModel.from_pretrained(saved.folder).eval()
    assert checkpoint.config.max_positions in (44, 48, 50)
    for length in (1, 7, checkpoint.config.max_positions):
        ids = torch.randint(4, PIECES, (2, length))
        expected = theirs(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        found = checkpoint.model.encode(ids, torch.tensor([length, length]))
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)


@torch.no_grad()
def test_norms_of_old_have_other_names(tmp_path: Path) -> None:
    """As in bert-base-uncased's own file, whose config.json of before says nothing of padding."""
    saved = write(tmp_path / "tiny", BertForMaskedLM(bert()))
    states = load(saved.folder).model.state_dict()
    file, old = saved.folder / "model.safetensors", {"LayerNorm.weight": "LayerNorm.gamma", "Norm.bias": "Norm.beta"}
    tensors = load_file(file)
    for new, name in old.items():
        tensors = {key.replace(new, name): tensor for key, tensor in tensors.items()}
    assert sum(key.endswith(("LayerNorm.gamma", "LayerNorm.beta")) for key in tensors) == 2 * (2 * 3 + 2)
    save_file(tensors, file, {"format": "pt"})
    saved.config(pad_token_id=None)
    found = load(saved.folder)
    for name, tensor in found.model.state_dict().items():
        assert torch.equal(tensor, states[name]), name
    ids = torch.randint(4, PIECES, (1, 9))
    expected = AutoModel.from_pretrained(saved.folder).eval()(ids).last_hidden_state
    torch.testing.assert_close(found.model.encode(ids, torch.tensor([9])), expected, atol=2e-5, rtol=0)


def test_a_norm_under_both_names_is_refused(saved: Saved) -> None:
    file = saved.folder / "model.safetensors"
    tensors = load_file(file)
    save_file(tensors | {"embeddings.LayerNorm.gamma": tensors["embeddings.LayerNorm.weight"] + 1}, file)
    with pytest.raises(CheckpointError, match="has a tensor under two names"):
        load(saved.folder)


def test_a_plain_folder_has_the_mean_and_its_tokenizers_own_template(saved: Saved) -> None:
    checkpoint = load(saved.folder)
    assert checkpoint.encoding.poolings == (Pooling.MEAN,) and not checkpoint.encoding.normalize
    assert (checkpoint.tokenizer.affixes.prefix_ids, checkpoint.tokenizer.affixes.suffix_ids) == ((2,), (3,))
    assert (checkpoint.config.end_id, checkpoint.config.pad_id, checkpoint.config.decoder_layers) == (3, 0, 0)


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
        (["Transformer", "Pooling"], {"pooling_mode": "median"}, {}, "pooling_mode is 'median'"),
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


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"hidden_act": "gelu_new"}, "hidden_act is 'gelu_new'"),
        ({"vocab_size": None}, "vocab_size is missing"),
        ({"vocab_size": 200}, "has token 299; the model has 200 tokens"),
        ({"num_attention_heads": 5}, "width 36 is not a multiple of 5 heads"),
        ({"intermediate_size": 57}, "has shape [56, 36]; expected [57, 36]"),
        ({"num_hidden_layers": 2}, "has no tensor encoder.layer.2"),
        ({"num_hidden_layers": 4}, "tensor encoder.layer.3.attention.self.query.weight is missing"),
        ({"max_position_embeddings": 60}, "position_embeddings.weight has shape [50, 36]; expected [60, 36]"),
        ({"relative_attention_num_buckets": 16}, "relative_attention_num_buckets is 16"),
        ({"type_vocab_size": 1}, "token_type_embeddings.weight has shape [2, 36]; expected [1, 36]"),
    ],
)
def test_values_that_are_not_honoured_are_refused_by_name(changes: dict[str, object], told: str, saved: Saved) -> None:
    saved.config(**changes)
    with pytest.raises(CheckpointError) as caught:
        load(saved.folder)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"architectures": ["ModernBertForTokenClassification"]}, "'ModernBertForTokenClassification', whose head has"),
        ({"layer_types": ["full_attention"]}, "layer_types has 1 layers; num_hidden_layers is 5"),
        ({"layer_types": ["chunked_attention"] * 5}, "layer_types.0 is 'chunked_attention'"),
        ({"mlp_bias": True}, "attention_bias is False and mlp_bias True; expected the same"),
        ({"norm_bias": True}, "tensor embeddings.norm.bias is missing"),
        ({"rope_scaling": {"factor": 2.0}}, "rope_scaling is {'factor': 2.0}"),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}},
            "rope_parameters.full_attention.rope_type is 'yarn'",
        ),
        ({"num_attention_heads": 4}, "there are 0 decoder layers, and a head has 9"),
    ],
)
def test_what_a_modernbert_has_besides_is_refused(changes: dict[str, object], told: str, tmp_path: Path) -> None:
    saved = write(tmp_path / "tiny", ModernBertModel(modernbert()))
    saved.config(**changes)
    with pytest.raises(CheckpointError) as caught:
        load(saved.folder)
    assert told in str(caught.value)


@torch.no_grad()
def test_a_modernbert_of_old_is_the_same(tmp_path: Path) -> None:
    """Its config.json says by older keys which layers are which, and sentence-transformers asks for longer texts."""
    saved = write(tmp_path / "tiny", ModernBertModel(modernbert()))
    found = load(saved.folder).config
    old = {"global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0}
    saved.config(layer_types=None, rope_parameters=None, **old)
    saved.sentences(["Transformer", "Pooling"], {"pooling_mode": "mean"}, sentence_bert_config={"max_seq_length": 8192})
    again = load(saved.folder)
    assert again.config == found and found.rotary is not None and found.rotary.local_layers == (1, 2, 4)
    assert again.encoding.max_tokens == 50


def test_a_folder_without_a_tokenizer_is_refused(saved: Saved) -> None:
    (saved.folder / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"has no tokenizer\.json, and no vocab\.txt of which BertTokenizer"):
        load(saved.folder)


def test_a_tokenizer_that_ends_no_text_is_refused(saved: Saved) -> None:
    tokenizer = wordpiece()
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 2)])
    tokenizer.save(str(saved.folder / "tokenizer.json"))
    with pytest.raises(CheckpointError, match="no token ends a text"):
        load(saved.folder)


def test_damaged_weights_are_refused(saved: Saved) -> None:
    file = saved.folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="not a whole safetensors file"):
        load(saved.folder)


def test_who_wants_a_translation_model_is_told(saved: Saved) -> None:
    with pytest.raises(CheckpointError, match="'bert', an encoder alone, which does not translate"):
        load_checkpoint(saved.folder)


def test_a_family_that_is_not_known_is_named(saved: Saved) -> None:
    saved.config(model_type="electra")
    assert not is_encoder(saved.folder)
    saved.sentences(["Transformer", "Pooling"], {"pooling_mode": "mean"})
    with pytest.raises(CheckpointError, match="model_type is 'electra'; supported: bert, roberta, xlm-roberta"):
        load(saved.folder)
