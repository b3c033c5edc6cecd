"""The seam between decoding and whatever runs the model. Tests put a decoder here that copies its source.

A search says what it must see of the rows of a step, in an `Ask`. A decoder gives that, in a `Found`, and computes
nothing that nobody asked for.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from engine.devices.session import Device
from engine.links import Looked, ReadOn
from kernels.steps import Following, SoFar
from models.decoding import Decoding


class EncodedSource(Protocol):
    """An encoded source, kept where the decoder wants it."""

    @property
    def computed_tokens(self) -> float:
        """Tokens that the encoder computed for it: its own, and its share of those that fill up a batch."""
        ...

    def hidden(self) -> NDArray[np.float32]:
        """The last hidden states of the source tokens [tokens, width]."""
        ...


TokenIds = Sequence[int] | NDArray[np.int64]
Parents = Sequence[int] | NDArray[np.intp]
"""The row that each is to continue."""

NOT_FINITE = -1
"""In the place of a row's best token: the model's numbers for it are not finite. The other rows are not touched."""

S_contra = TypeVar("S_contra", bound=EncodedSource, contravariant=True)
S = TypeVar("S", bound=EncodedSource)


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """How rows will most probably go on after a step, for a decoder that makes steps before it is asked for them.

    The last rows are those of beam searches, each search's side by side and its best hypothesis first. A search goes on
    with the best extensions of its hypotheses, as many as it has. Every other row goes on with its best token.
    """

    widths: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    """Rows of each beam search, in their order [searches]."""
    never: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """Tokens that no hypothesis of a beam search goes on with."""
    costs: Callable[[], NDArray[np.float64]] = field(default=lambda: np.zeros(0))
    """-sum(log p) of every hypothesis of a beam search by now, in the order of their rows."""


EACH_BEST = Outlook()
"""Every row goes on with its best token."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What must be seen of every row of a step."""

    best: int = 1
    """So many most probable next tokens."""
    named: bool = False
    """The log-probabilities of some tokens, of those rows that somebody then names them for."""
    normaliser: bool = False
    """The logarithm of the sum of all exp(logit), of those rows that somebody then looks at."""
    logits: bool = False
    """The logits of the whole vocabulary, likewise."""
    attention: bool = False
    """Where the row looks in its source."""
    outlook: Outlook | None = field(default=EACH_BEST, compare=False)
    """How rows will go on. None: nobody can tell."""

    @classmethod
    def of_all(cls, asks: Iterable["Ask"]) -> "Ask":
        """What satisfies each of them. There must be one."""
        first, *others = {ask: None for ask in asks}  # most often they are equal
        return first._and(others) if others else first

    def _and(self, others: Sequence["Ask"]) -> "Ask":
        asks = [self, *others]
        return Ask(
            max(ask.best for ask in asks),
            any(ask.named for ask in asks),
            any(ask.normaliser for ask in asks),
            any(ask.logits for ask in asks),
            any(ask.attention for ask in asks),
        )


LogitsOf = Callable[[NDArray[np.intp]], NDArray[np.float32]]
"""The logits of some rows [some, vocabulary], as a copy. -inf: a shortlist does not allow the token."""
NormaliserOf = Callable[[NDArray[np.intp]], NDArray[np.float32]]
"""Of some rows [some]."""
NamedOf = Callable[[NDArray[np.intp], NDArray[np.int64]], NDArray[np.float32]]
"""Of some rows, the scores of tokens of each [some, named]. -inf: a shortlist does not allow it, or it is negative."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a step found of every live row. What was not asked for is None."""

    token_ids: NDArray[np.int64]
    """The most probable next tokens, best first [rows, best]. NOT_FINITE: there are none."""
    log_probs: NDArray[np.float32]
    """[rows, best]"""
    named: NamedOf | None = None
    """Log-probabilities. This and the next two: until the next step begins."""
    normaliser: NormaliserOf | None = None
    logits: LogitsOf | None = None
    attention: NDArray[np.float32] | None = None
    """Cross-attention of the last decoder layer, the mean of its heads [rows, longest source]; 0 behind others."""


class Cache(Protocol[S_contra]):
    """The running batch: rows 0..live-1, each a hypothesis at its own position.

    A row holds the keys and values of its source and of the target tokens before its position.
    """

    @property
    def live(self) -> int:
        """How many rows are in use."""
        ...

    def join(self, source: S_contra) -> int:
        """Starts a row for a source, at position 0. Returns its index, which is the old `live`."""
        ...

    def begin_step(self, token_ids: TokenIds, ask: Ask) -> None:
        """Starts a step that feeds one token to each live row [live] and finds what is asked of each.

        A device may compute it while the caller does something else. Nothing but `end_step` may follow. Raises
        NotOffered where the package's graphs do not give what is asked.
        """
        ...

    def end_step(self) -> Found:
        """Waits for the step that was begun. Every row has advanced by one position.

        The arrays of the answer are overwritten by the next step. They may have more than `best` columns.
        """
        ...

    def take(self, parents: Parents) -> int:
        """Makes row i continue old row parents[i]; len(parents) rows are live afterwards. Returns the bytes it copied.

        Leaving, widening to a beam and reordering beams are all this. Only rows that moved are copied, in place, so
        a row that is overwritten must not be read: where parents[i] != i, i is not in parents. Where rows have slots
        they may be any.
        """
        ...


class Goes(Protocol):
    """A search of all rows of a cache, whose step is the best token of each, or the best extensions of beams."""

    def follow(self, following: Following, found: Found, most: int) -> int:
        """Makes up to `most` decoder steps, until it has something else to do than to go on. Returns how many.

        found: what each of them finds. The last one's is there when it returns.
        """
        ...


class Followed(NamedTuple):
    """Steps that were made together."""

    found: Found
    """By the last one."""
    steps: int
    moved_rows: int
    """Between them."""
    moved_bytes: int


@runtime_checkable
class FollowingCache(Protocol):
    """A cache that makes steps of a search by itself."""

    def follow(self, search: Goes, most: int, arrivals: SoFar) -> Followed | None:
        """Makes the step that was begun, and up to `most` - 1 behind it, unless somebody arrives.

        None: such a step cannot be made so, and is still to be ended.
        """
        ...


class GivenTargets(Protocol):
    """What looks at targets that are given, by teacher-forced passes: see `engine.logits.target_graphs`."""

    @property
    def scores(self) -> bool:
        """Whether they can be scored."""
        ...

    @property
    def aligns(self) -> bool:
        """Whether it can be told which source token a target token comes from."""
        ...

    @property
    def covers(self) -> bool:
        """Whether it can be told how much of a source a target leaves out."""
        ...

    @property
    def attends(self) -> bool:
        """Whether it can be told where every head looks, in a source too."""
        ...

    def score(
        self, hidden: NDArray[np.float32], prefix: Sequence[int], targets: Sequence[Sequence[int]]
    ) -> Iterator[dict[int, NDArray[np.float32]]]:
        """The log-probabilities of their tokens, little by little. Raises NotOffered."""
        ...

    def look(
        self,
        hidden: NDArray[np.float32],
        prefix: Sequence[int],
        targets: Sequence[Sequence[int]],
        decoding: Decoding,
    ) -> Iterator[dict[int, Looked]]:
        """Where their tokens look, as far as options want it, little by little. Raises NotOffered."""
        ...

    def source_attention(self, source_ids: Sequence[int]) -> NDArray[np.float32]:
        """Where a source looks in itself [layers, heads, source, source]. Raises NotOffered."""
        ...

    def look_back(
        self, hidden: NDArray[np.float32], prefix: Sequence[int], target: Sequence[int]
    ) -> NDArray[np.float32] | None:
        """Where what is fed for a target looks in itself [layers, heads, fed, fed]. None: that cannot be told."""
        ...

    def states(
        self, hidden: NDArray[np.float32], prefix: Sequence[int], target: Sequence[int]
    ) -> NDArray[np.float32] | None:
        """What is fed for a target after the last layer [fed, width]. None: that cannot be told."""
        ...

    def read_on(self, source_ids: Sequence[int], fed_ids: Sequence[int]) -> ReadOn | None:
        """What one stack finds in a source and what is fed behind it. None: that cannot be told."""
        ...


class Decoder(Protocol[S]):
    """A loaded model."""

    @property
    def device(self) -> Device:
        """What it runs on."""
        ...

    @property
    def row_tokens(self) -> int:
        """Source and target tokens that a row has room for."""
        ...

    @property
    def gives_logits(self) -> bool:
        """Whether whole rows of scores can be asked for."""
        ...

    @property
    def given_targets(self) -> GivenTargets:
        """What looks at targets that are given."""
        ...

    def encode(self, sources: Sequence[Sequence[int]], named: Sequence[Sequence[int]] = ()) -> list[S]:
        """Runs the encoder on sources, the end tokens included.

        named: tokens that the target of each source may have, whether a shortlist gives them or not. Empty: none
        Raises OutOfMemory if there is no memory for so many tokens at once; nothing else is harmed by that.
        """
        ...

    def open_cache(self, rows: int) -> Cache[S]:
        """A running batch with room for so many rows."""
        ...

    def close(self) -> None:
        """Gives back what the device would keep. No cache of it may be used afterwards."""
        ...
