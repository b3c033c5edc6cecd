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


ARCHITECTURES = (DEFAULT, "recurrent", "prefix")
BY_ARCHITECTURE = Discriminator(
    architecture_of,
    custom_error_type="architecture",
    custom_error_message=f"architecture is none of {', '.join(ARCHITECTURES)}",
)
AnyConfig = Annotated[
    Annotated[ModelConfig, Tag("transformer")]
    | Annotated[RecurrentConfig, Tag("recurrent")]
    | Annotated[PrefixConfig, Tag("prefix")],
    BY_ARCHITECTURE,
]
"""The shape of a model of any architecture."""


def key_of(location: tuple[int | str, ...]) -> str:
    """The key that pydantic finds a fault at, as its file has it: the model's have no tag of an architecture there."""
    match location:
        case ("model", tag, *rest) if tag in ARCHITECTURES:
            location = ("model", *rest)
    return ".".join(map(str, location))
