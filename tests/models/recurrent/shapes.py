"""Recurrent models of many shapes, with random weights."""

import torch

from models.architectures.recurrent.config import RecurrentConfig
from models.architectures.recurrent.model import Recurrent
from models.best_tokens import NEVER

BASE: dict[str, object] = {
    "architecture": "recurrent",
    "source_vocab_size": 131,
    "target_vocab_size": 131,
    "width": 24,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "max_positions": 64,
    "pad_id": 130,
    "end_id": 0,
    "decoder_start_id": 130,
}


def shape(**changes: object) -> RecurrentConfig:
    return RecurrentConfig.model_validate(BASE | changes)


LUONG: dict[str, object] = {"attends": "after", "input_feeding": True}
SUTSKEVER: dict[str, object] = {"score": "none", "first_state": "copied", "reverse_source": True}

SHAPES = {
    "gru, additive (Bahdanau)": shape(),
    "lstm, none, reversed (Sutskever)": shape(cell="lstm", bidirectional=False, **SUTSKEVER),
    "gru, none (Cho)": shape(score="none", encoder_layers=1, bidirectional=False),
    "rnn, location, fed, local (Luong)": shape(cell="rnn", score="location", window=3, **LUONG),
    "gru, general, local": shape(score="general", window=2, attends="after"),
    "lstm, dot, fed (Luong)": shape(cell="lstm", score="dot", scale_embedding=True, **LUONG),
    "gru, concat, fed (Luong)": shape(score="concat", decoder_layers=1, **LUONG),
    "gru, general": shape(score="general", attends="after", encoder_layers=1, first_state="projected"),
    "lstm, projected": shape(cell="lstm", score="projected", tie_output=False, output_bias=False),
    "rnn, scaled dot, one way": shape(cell="rnn", score="scaled_dot", bidirectional=False),
    "gru, cosine, two vocabularies": shape(score="cosine", share_embeddings=False, source_vocab_size=99),
    "rnn, none, both ways, copied": shape(cell="rnn", score="none", first_state="copied"),
}


def random_model(config: RecurrentConfig) -> Recurrent:
    """Weights large enough for targets that vary, and end."""
    torch.manual_seed(7)
    model = Recurrent(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
        model.output_bias[config.target_vocab_size :] = NEVER
    return model
