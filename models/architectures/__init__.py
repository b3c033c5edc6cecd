"""What a model may be besides a Transformer, and what all of them have in common. Torch-free, but for the models."""

from typing import Annotated

from pydantic import Discriminator, Tag

from models.architectures.prefix.config import PrefixConfig
from models.architectures.recurrent.config import RecurrentConfig
from models.config import ModelConfig

DEFAULT = "transformer"
"""The architecture of packages that name none: there was no other."""


def architecture_of(shape: object) -> object:
    """Of a shape, or of what will become one."""
    if isinstance(shape, dict):
        return shape.get("architecture", DEFAULT)
    return getattr(shape, "architecture", DEFAULT)


AnyConfig = Annotated[
    Annotated[ModelConfig, Tag("transformer")]
    | Annotated[RecurrentConfig, Tag("recurrent")]
    | Annotated[PrefixConfig, Tag("prefix")],
    Discriminator(architecture_of),
]
"""The shape of a model of any architecture."""
