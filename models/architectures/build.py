"""A model of any shape."""

from models.architectures.architecture import Architecture
from models.architectures.prefix.config import PrefixConfig
from models.architectures.prefix.model import Prefix
from models.architectures.recurrent.config import RecurrentConfig
from models.architectures.recurrent.model import Recurrent
from models.config import ModelConfig
from models.transformer import Transformer


def build(config: ModelConfig | RecurrentConfig | PrefixConfig) -> Architecture:
    """With random weights."""
    match config:
        case RecurrentConfig():
            return Recurrent(config)
        case PrefixConfig():
            return Prefix(config)
    return Transformer(config)
