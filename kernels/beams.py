"""The steps of beam searches, by the built library."""

import ctypes
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.library import Library
from kernels.steps import Following

STEPS = 32
"""Memory is made for so many at once."""


class _BeamStep(ctypes.Structure):
    """A step, as src/beams.h declares it."""

    _fields_ = (
        ("searches", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("rows", ctypes.c_int64),
        ("candidates", ctypes.c_int64),
        ("specials", ctypes.c_int64),
        ("token_ids", ctypes.c_void_p),
        ("log_probs", ctypes.c_void_p),
        ("row", ctypes.c_void_p),
        ("costs", ctypes.c_void_p),
        ("wanted", ctypes.c_void_p),
        ("special", ctypes.c_void_p),
        ("parents", ctypes.c_void_p),
        ("tokens", ctypes.c_void_p),
        ("parent_rows", ctypes.c_void_p),
        ("next_costs", ctypes.c_void_p),
        ("unusual", ctypes.c_void_p),
        ("unusual_searches", ctypes.c_int64),
        ("ends", ctypes.c_void_p),
        ("spare", ctypes.c_void_p),
        ("at", ctypes.c_int64),
        ("plain", ctypes.c_int64),
        ("ended", ctypes.c_void_p),
        ("ended_room", ctypes.c_int64),
        ("ended_count", ctypes.c_int64),
    )


class _Ended(ctypes.Structure):
    """A hypothesis that has ended, as src/beams.h declares it."""

    _fields_ = (
        ("step", ctypes.c_int64),
        ("search", ctypes.c_int64),
        ("parent", ctypes.c_int64),
        ("token", ctypes.c_int64),
        ("cost", ctypes.c_double),
    )


class Ended(NamedTuple):
    """A hypothesis that has ended."""

    step: int
    """Of those that were made together, the first being 0."""
    search: int
    parent: int
    """The hypothesis that it extends, one of the step before."""
    token: int
    cost: float
    """-sum(log p) with that token."""


class ExtendedBeams(NamedTuple):
    """What a step makes of hypotheses: the first four [searches, width]. Where there is none, it costs infinitely."""

    parents: NDArray[np.int64]
    """Which hypothesis of its search each extends, 0 being the best."""
    tokens: NDArray[np.int64]
    """By what. -2 where there is none."""
    costs: NDArray[np.float64]
    """-sum(log p) with that token."""
    rows: NDArray[np.int64]
    """The row of that hypothesis."""
    unusual: list[int]
    """The searches with a special token among these, with fewer of them than wanted, or with numbers that are none."""


class BeamSteps:
    """Makes them for one running batch.

    What it is given is looked at where it is another array than at the step before: to ask a few arrays where they are
    takes longer than the step.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._step = _BeamStep()
        self._step_at = ctypes.addressof(self._step)
        none = np.zeros((0, 0), np.int64)
        self._candidates: tuple[NDArray[np.int64], NDArray[np.float32]] = none, none.astype(np.float32)
        self._rows, self._special, self._wanted = none, none, np.zeros(0, np.int64)
        self._costs = none.astype(np.float64)
        self._unusual = np.zeros(0, np.uint8)
        self._ends, self._spare = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._ended = (_Ended * STEPS)()
        self._step.ended, self._step.ended_room = ctypes.addressof(self._ended), STEPS
        self._coming: Iterator[tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]] = iter(())
        """Memory of the steps that are made next: of each the first four arrays of what becomes of it."""
        self._left = 0
        """Steps that there is memory for."""
        self._at = self._of_step = self._of_part = 0
        """Where that of the next one is, and how many bytes a step takes, and each of its arrays."""

    def extend(
        self,
        token_ids: NDArray[np.int64],
        log_probs: NDArray[np.float32],
        rows: NDArray[np.int64],
        costs: NDArray[np.float64],
        wanted: NDArray[np.int64],
        special: NDArray[np.int64],
    ) -> ExtendedBeams:
        """Finds the best extensions of every search's hypotheses; of equal ones the better hypothesis' comes first.

        Args:
            token_ids: the most probable next tokens of each row [rows, candidates]. -1: the model's numbers are none.
            log_probs: theirs [rows, candidates].
            rows: of each hypothesis [searches, width].
            costs: of each; infinite where there is none [searches, width].
            wanted: how many extensions of each search live on [searches].
            special: tokens that a search does not merely append [searches, any].

        Raises:
            ValueError: there is no such row, more are wanted than the width, or arrays do not fit each other.
        """
        self._prepare(token_ids, log_probs, rows, costs, wanted, special)
        self._library.extend_beams(self._step_at)
        return self._made_last(1)

    def follow(
        self,
        following: Following,
        most: int,
        token_ids: NDArray[np.int64],
        log_probs: NDArray[np.float32],
        rows: NDArray[np.int64],
        costs: NDArray[np.float64],
        wanted: NDArray[np.int64],
        special: NDArray[np.int64],
        ends: NDArray[np.int64],
        spare: NDArray[np.int64],
        plain: int,
    ) -> tuple[list[ExtendedBeams], list[Ended]]:
        """Makes decoder steps whose best extensions live on, until a search has to see to something.

        All rows belong to hypotheses, and in their order.

        Args:
            following: makes them.
            most: so many.
            token_ids: what each step finds, see `extend`.
            log_probs: likewise.
            rows: of the first step's hypotheses, which are fed. See `extend`, as for the rest.
            costs: likewise.
            wanted: of all steps.
            special: likewise.
            ends: how many of each search's special tokens, the first ones, end hypotheses [searches].
            spare: how many may end before the search sees to it [searches]. Fewer afterwards, where some have.
            plain: in so many of the steps.

        Raises:
            ValueError: see `extend`, or a step fails.
        """
        self._prepare(token_ids, log_probs, rows, costs, wanted, special)
        step = self._step
        if ends is not self._ends or spare is not self._spare:
            step.ends, step.spare = (_address(array, np.int64, wanted.shape) for array in (ends, spare))
            self._ends, self._spare = ends, spare
        step.at, step.ended_count, step.plain = 0, 0, plain
        try:
            made = following.beams(self._step_at, min(most, self._left))
        finally:
            step.plain = 0
        before = [ExtendedBeams(*arrays, []) for arrays in islice(self._coming, made - 1)]
        ended = self._ended[: step.ended_count] if step.ended_count else ()
        return [*before, self._made_last(made)], [
            Ended(one.step, one.search, one.parent, one.token, one.cost) for one in ended
        ]

    def _prepare(
        self,
        token_ids: NDArray[np.int64],
        log_probs: NDArray[np.float32],
        rows: NDArray[np.int64],
        costs: NDArray[np.float64],
        wanted: NDArray[np.int64],
        special: NDArray[np.int64],
    ) -> None:
        step = self._step
        if token_ids is not self._candidates[0] or log_probs is not self._candidates[1]:
            self._take_candidates(token_ids, log_probs)
        if rows is not self._rows or wanted is not self._wanted or special is not self._special:
            self._take_searches(rows, wanted, special)
        if costs is not self._costs:
            step.costs, self._costs = _address(costs, np.float64, rows.shape), costs
        if not self._left:
            self._make_room(rows.shape)
        at, of_part = self._at, self._of_part
        costs_at = at + 2 * of_part
        step.parents, step.tokens, step.next_costs, step.parent_rows = at, at + of_part, costs_at, costs_at + of_part

    def _made_last(self, steps: int) -> ExtendedBeams:
        """What the last of so many steps has made of the hypotheses."""
        step = self._step
        parents, tokens, costs, rows = next(self._coming)
        self._at += steps * self._of_step
        self._left -= steps
        self._costs, step.costs = costs, step.next_costs
        unusual = self._unusual.nonzero()[0].tolist() if step.unusual_searches else []
        return ExtendedBeams(parents, tokens, costs, rows, unusual)

    def _make_room(self, shape: tuple[int, ...]) -> None:
        """For steps of searches of so many hypotheses."""
        memory = np.empty((STEPS, 4, *shape), np.int64)
        self._at, (self._of_step, self._of_part, *_) = memory.ctypes.data, memory.strides
        parents, tokens, costs, rows = memory.swapaxes(0, 1)
        self._coming, self._left = zip(parents, tokens, costs.view(np.float64), rows, strict=True), STEPS

    def _take_candidates(self, token_ids: NDArray[np.int64], log_probs: NDArray[np.float32]) -> None:
        at = _address(token_ids, np.int64, token_ids.shape), _address(log_probs, np.float32, token_ids.shape)
        (self._step.token_ids, self._step.log_probs), self._candidates = at, (token_ids, log_probs)
        self._step.rows, self._step.candidates = token_ids.shape

    def _take_searches(self, rows: NDArray[np.int64], wanted: NDArray[np.int64], special: NDArray[np.int64]) -> None:
        step, (searches, width) = self._step, rows.shape
        at = _address(rows, np.int64, rows.shape), _address(wanted, np.int64, (searches,))
        step.special = _address(special, np.int64, (searches, special.shape[1]))
        (step.row, step.wanted), self._rows, self._wanted, self._special = at, rows, wanted, special
        step.specials = special.shape[1]
        if (step.searches, step.width) != rows.shape:
            step.searches, step.width = searches, width
            self._coming, self._left, self._costs = iter(()), 0, np.zeros((0, 0))
            self._unusual = np.zeros(searches, np.uint8)
            step.unusual = self._unusual.ctypes.data


def _address(array: NDArray[Any], dtype: type[np.generic], shape: tuple[int, ...]) -> int:
    if array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous:
        raise ValueError(
            f"an array must be {dtype.__name__} {list(shape)} that lies together, and is {array.dtype} "
            f"{list(array.shape)}"
        )
    return array.ctypes.data
