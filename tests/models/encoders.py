"""Encoders alone, with random weights."""

from pathlib import Path

import torch

from export.tracing.trace import trace_encoders
from export.weights.save import save
from models.config import ModelConfig
from models.package.graph_files import GraphFiles
from models.transformer import Transformer

CONFIG = ModelConfig(
    source_vocab_size=97,
    target_vocab_size=97,
    width=40,
    encoder_layers=2,
    decoder_layers=0,
    encoder_heads=4,
    decoder_heads=4,
    encoder_ffn=72,
    decoder_ffn=72,
    max_positions=64,
    activation="gelu",
    positions="learned",
    encoder_embedding_norm="sum",
    norm_epsilon=1e-12,
    pad_id=0,
    end_id=3,
    decoder_start_id=2,
)


def random_encoder(config: ModelConfig = CONFIG) -> Transformer:
    """Norms and biases are off 1 and 0."""
    torch.manual_seed(5)
    model = Transformer(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
        if config.relative != "none":
            for table in model.source_relative.tables:
                table.normal_()
    return model


def saved(model: Transformer, folder: Path) -> GraphFiles:
    """Its graphs."""
    return save(trace_encoders(model), folder)
