"""Encoders that transformers saves, small and of random weights."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
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
    # Whatever the family's own is.
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]", "model_input_names": inputs}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return Saved(folder)
