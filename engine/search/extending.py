"""The best extensions of all hypotheses of a running batch: what a step of beam search is, where nothing ends.

Our library has it in C++, because NumPy takes longer to be asked than this takes to be computed. Both choose the same.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.decoder import NOT_FINITE, Found
from engine.search.ranking import Ranking, Step
from engine.search.score import NO_TOKEN
from kernels.beams import BeamSteps, Ended, ExtendedBeams
from kernels.library import Library, LibraryError, open_library
from kernels.steps import Following


class Beams(NamedTuple):
    """The hypotheses of searches, best first."""

    rows: NDArray[np.intp]
    """[searches, hypotheses]. Some row where there is none."""
    costs: NDArray[np.float64]
    """-sum(log p), infinite where there is none [searches, hypotheses]."""
    wanted: NDArray[np.intp]
    """So many are to live on [searches]."""
    special: NDArray[np.int64]
    """The tokens that a search does not merely append [searches, most of any search]."""


class Ending(NamedTuple):
    """Which hypotheses may end while steps are made together."""

    ends: NDArray[np.int64]
    """So many of a search's special tokens, the first ones, end them [searches]."""
    spare: NDArray[np.int64]
    """So many may, before the search must see to it [searches]. Fewer afterwards."""
    steps: int
    """In so many steps."""


class Extended(NamedTuple):
    """What the best extensions are."""

    step: Step
    rows: NDArray[np.intp]
    """The row that each continues [searches, hypotheses]."""
    unusual: list[int]
    """Searches with a special token, with fewer extensions than are wanted, or with numbers that are not finite."""


def special_searches(step: Step, wanted: NDArray[np.intp], special: NDArray[np.int64]) -> list[int]:
    """Those in which something ends, or cannot be."""
    met = (step.tokens[:, :, None] == special[:, None, :]) & (step.tokens != NO_TOKEN)[:, :, None]
    fewer = np.isfinite(step.costs).sum(1) < wanted
    return np.flatnonzero(met.reshape(len(met), -1).any(1) | fewer).tolist()


def extend_by_numpy(found: Found, beams: Beams) -> Extended:
    """Where the library is not built."""
    ranking = Ranking(beams.costs, found.token_ids[beams.rows], found.log_probs[beams.rows])
    step = ranking.best(np.arange(len(beams.rows)))
    none = (np.arange(beams.rows.shape[1]) >= beams.wanted[:, None]) | ~np.isfinite(step.costs)
    step.parents[none], step.tokens[none], step.costs[none] = 0, NO_TOKEN, np.inf
    broken = ((found.token_ids[:, 0] == NOT_FINITE)[beams.rows] & np.isfinite(beams.costs)).any(1)
    special = special_searches(step, beams.wanted, beams.special)
    rows = np.take_along_axis(beams.rows, step.parents, 1)
    return Extended(step, rows, sorted({*special, *np.flatnonzero(broken).tolist()}))


class CompiledExtending:
    """What the library makes of the beams of one running batch."""

    def __init__(self, library: Library) -> None:
        self._steps = BeamSteps(library)

    def __call__(self, found: Found, beams: Beams) -> Extended:
        """See `extend_by_numpy`."""
        token_ids, log_probs = np.ascontiguousarray(found.token_ids), np.ascontiguousarray(found.log_probs)
        return _extended(self._steps.extend(token_ids, log_probs, *beams))

    def follow(
        self, following: Following, found: Found, beams: Beams, most: int, ending: Ending
    ) -> tuple[list[Extended], list[Ended]]:
        """Makes decoder steps, up to `most`: what each makes of the beams, and what has ended. See `kernels.beams`."""
        made, ended = self._steps.follow(following, most, found.token_ids, found.log_probs, *beams, *ending)
        return [_extended(step) for step in made], ended


def _extended(step: ExtendedBeams) -> Extended:
    parents, tokens, costs, rows, unusual = step
    return Extended(Step(parents, tokens, costs), rows, unusual)


Extend = Callable[[Found, Beams], Extended]


def fastest() -> Extend:
    """For one running batch: by the library, where it is built."""
    library = _library()
    return extend_by_numpy if library is None else CompiledExtending(library)


@cache
def _library() -> Library | None:
    try:
        return open_library()
    except LibraryError:
        return None
