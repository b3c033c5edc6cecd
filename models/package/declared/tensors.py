"""The tensors that a decoder graph reads and writes from step to step."""

from collections.abc import Sequence
from math import prod
from typing import Annotated, Literal

from pydantic import Field, model_validator

from models.config import Frozen
from models.package.declared.precision import Precision

Owner = Literal["hypothesis", "source"]
Axis = Annotated[int, Field(gt=0)] | Literal["rows", "target", "source"]


class CacheTensor(Frozen):
    """A tensor of the running batch, which the decoder graph reads and writes in place."""

    past: str
    """Name of the input that holds what is cached."""
    present: str
    """Name of the output with what is cached after the step. The input's, where the graph only reads the tensor."""
    precision: Precision
    axes: tuple[Axis, ...]
    """"rows" first. One may be "target" or "source": the tensor grows along it with the tokens of a row. Without such
    an axis it is a state, which goes where its hypothesis goes, whole.

    Writing a state in place is safe because the graph reads it only to compute, number by number, what it writes. A
    step that is made twice, or made and not wanted, spoils it."""
    owner: Owner
    """A hypothesis's tensor goes where the hypothesis goes. A source's moves when its row gets another source."""
    start: str | None = None
    """Name of the encoder output that it starts with, whose first axis is sentences. None: zeros."""
    last: str | None = None
    """Name of the input with what it holds of each row's last source token [rows, 1, heads * head_dim].

    GroupQueryAttention always appends one token. Given the last source token again, at the place where it already
    stands, it attends to the source exactly, however long the other rows' sources are.
    """

    @model_validator(mode="after")
    def _consistent(self) -> "CacheTensor":
        if self.axes[:1] != ("rows",) or self.axes.count("rows") > 1:
            raise ValueError(f"{self.past} has the axes {self.axes}; rows must come first, and once")
        if len([axis for axis in self.axes if axis in ("target", "source")]) > 1:
            raise ValueError(f"{self.past} has the axes {self.axes}; it can grow along one of them only")
        if self.last is not None and self.grows != "source":
            raise ValueError(f"{self.past} has {self.last}, and no source axis")
        return self

    @property
    def written(self) -> bool:
        """The graph does more than read it."""
        return self.present != self.past

    @property
    def grows(self) -> Literal["target", "source"] | None:
        """Along what."""
        if "target" in self.axes:
            return "target"
        return "source" if "source" in self.axes else None

    @property
    def continues(self) -> bool:
        """It holds a source's tokens, and then the target's."""
        return self.grows == "target" and self.start is not None

    def places(self, source: int, target: int) -> int:
        """Most that a row needs of the axis along which it grows, with so many tokens of each side; of a state, 1."""
        if self.grows is None:
            return 1
        return source if self.grows == "source" else target + (source if self.continues else 0)

    @property
    def heads(self) -> int:
        """How many a row has for each place along which it grows; of a state, 1."""
        return prod(self._numbers(self.axes[1 : self._place]))

    @property
    def head_dim(self) -> int:
        """Numbers of a head that lie together; of a state, all."""
        return prod(self._numbers(self.axes[self._place :]))

    def shape(self, rows: int, places: int) -> tuple[int, ...]:
        """With so many places along which it grows."""
        return tuple(axis if isinstance(axis, int) else rows if axis == "rows" else places for axis in self.axes)

    @property
    def _place(self) -> int:
        """Index of the axis along which it grows; of a state, the one after the rows."""
        return 1 if self.grows is None else self.axes.index(self.grows)

    @staticmethod
    def _numbers(axes: Sequence[Axis]) -> list[int]:
        return [axis for axis in axes if isinstance(axis, int)]


def alike(tensors: Sequence[CacheTensor]) -> list[tuple[CacheTensor, ...]]:
    """Tensors that are laid out, start and move alike together: an engine keeps them in one block of memory."""
    groups: dict[object, list[CacheTensor]] = {}
    for tensor in tensors:
        begins = tensor.start is None, tensor.last is None
        layout = tensor.precision, tensor.heads, tensor.head_dim
        groups.setdefault((tensor.owner, tensor.grows, begins, layout), []).append(tensor)
    return [tuple(group) for group in groups.values()]
