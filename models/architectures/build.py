"""A model of any shape."""

from models.architectures.architecture import Architecture
from models.architectures.recurrent.config import RecurrentConfig
from models.architectures.recurrent.model import Recurrent
from models.config import ModelConfig
from models.transformer import Transformer


def build(config: ModelConfig | RecurrentConfig) -> Architecture:
    """With random weights."""
    return Recurrent(config) if isinstance(config, RecurrentConfig) else Transformer(config)
