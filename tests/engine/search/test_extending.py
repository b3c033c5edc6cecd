"""engine.search.extending: the library chooses what NumPy does, to the bit, and refuses what it cannot read."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.decoder import NOT_FINITE, Found
from engine.search.extending import Beams, CompiledExtending, extend_by_numpy
from engine.search.score import NO_TOKEN
from kernels.beams import BeamSteps
from kernels.library import Library
from tests.kernels.conftest import library

__all__ = ["library"]

END, SUPPRESSED = 3, 4


def found(chance: np.random.Generator, rows: int, candidates: int) -> Found:
    """Few different numbers, so that many are equal, and some that are infinite or none."""
    log_probs = -np.sort(chance.integers(0, 4, (rows, candidates)) * 0.25).astype(np.float32)
    log_probs[:, 1:][chance.random((rows, candidates - 1)) < 0.05] = -np.inf
    token_ids = np.stack([chance.permutation(max(12, candidates))[:candidates] for _ in range(rows)])
    broken = chance.random(rows) < 0.05
    token_ids[broken, 0], log_probs[broken, 0] = NOT_FINITE, np.nan
    return Found(token_ids, -np.sort(-log_probs) if not broken.any() else log_probs)


@settings(deadline=None, max_examples=150)
@given(
    widths=st.lists(st.integers(0, 5), min_size=1, max_size=6),
    candidates=st.integers(2, 9),
    steps=st.integers(1, 4),
    seed=st.integers(0, 2**16),
)
def test_the_library_chooses_what_numpy_does(
    library: Library, widths: list[int], candidates: int, steps: int, seed: int
) -> None:
    """Searches of different widths, also of none, that go on for some steps and then change."""
    chance, width = np.random.default_rng(seed), max(1, *widths)
    compiled, wanted = CompiledExtending(library), np.array(widths)
    rows = chance.permutation(len(widths) * width).reshape(-1, width)
    live = np.minimum(wanted, chance.integers(1, width + 1, len(widths)))
    costs = np.where(np.arange(width) < live[:, None], chance.integers(0, 4, rows.shape) * 0.5, np.inf)
    special = np.array([[END, SUPPRESSED], [END, NO_TOKEN]])[chance.integers(0, 2, len(widths))]
    for step in range(steps):
        beams, of_rows = Beams(rows, costs, wanted, special), found(chance, rows.size, candidates)
        expected, extended = extend_by_numpy(of_rows, beams), compiled(of_rows, beams)
        assert extended.unusual == expected.unusual
        finite = [search for search in range(len(widths)) if not np.isnan(expected.step.costs[search]).any()]
        for one, other in zip((*extended.step, extended.rows), (*expected.step, expected.rows), strict=True):
            np.testing.assert_array_equal(one[finite], other[finite])
        costs = extended.step.costs
        if step % 2:
            rows = extended.rows.copy()


def test_what_is_unusual(library: Library) -> None:
    """A token that ends, too few extensions, and numbers that are none; else nothing is."""
    token_ids = np.array([[1, 2, 5], [1, END, 5], [1, 2, 5], [NOT_FINITE, 2, 5]])
    log_probs = np.array([[-1, -2, -3], [-1, -2, -3], [-1, -np.inf, -np.inf], [np.nan, 0, 0]], np.float32)
    for extend in (CompiledExtending(library), extend_by_numpy):
        for searches, unusual in ((4, [1, 2, 3]), (1, [])):
            rows, costs = np.arange(searches)[:, None].repeat(2, 1), np.array([[0, np.inf]] * searches)
            beams = Beams(rows, costs, np.full(searches, 2), np.full((searches, 1), END))
            assert extend(Found(token_ids, log_probs), beams).unusual == unusual


def test_what_the_library_refuses(library: Library) -> None:
    token_ids, log_probs = np.array([[1, 2]]), np.zeros((1, 2), np.float32)
    rows, costs, wanted, special = np.zeros((1, 1), np.int64), np.zeros((1, 1)), np.array([1]), np.array([[END]])
    steps = BeamSteps(library)
    steps.extend(token_ids, log_probs, rows, costs, wanted, special)
    with pytest.raises(ValueError, match="row 1 of 1"):
        steps.extend(token_ids, log_probs, rows + 1, costs, wanted, special)
    with pytest.raises(ValueError, match="2 hypotheses of a search that has room for 1"):
        steps.extend(token_ids, log_probs, rows, costs, wanted + 1, special)
    with pytest.raises(ValueError, match=r"must be float32 \[1, 2\] that lies together, and is float64 \[1, 2\]"):
        steps.extend(token_ids, log_probs.astype(np.float64), rows, costs, wanted, special)
    with pytest.raises(ValueError, match=r"must be int64 \[1\] that lies together, and is int64 \[2\]"):
        steps.extend(token_ids, log_probs, rows, costs, np.array([1, 1]), special)


def test_after_a_refusal_it_goes_on_as_before(library: Library) -> None:
    """Whatever was refused, of the next step it is told all anew."""
    token_ids, log_probs = np.array([[1, 2]]), np.array([[-0.5, -1.5]], np.float32)
    rows, costs, wanted, special = np.zeros((1, 1), np.int64), np.ones((1, 1)), np.array([1]), np.array([[END]])
    steps = BeamSteps(library)
    for _ in range(100):  # more than memory is made for at once
        for refused in (
            (token_ids + 1, log_probs[:, :1], rows, costs, wanted, special),
            (token_ids, log_probs, rows + 7, costs + 1, wanted, special),
            (token_ids, log_probs, rows, costs + 1, wanted, special.astype(np.int32)),
            (token_ids[:, :0], log_probs[:, :0], rows, costs, wanted, special),
        ):
            with pytest.raises(ValueError, match=r"must be|row 7 of 1|no candidates"):
                steps.extend(*refused)
        found = steps.extend(token_ids, log_probs, rows, costs, wanted, special)
        assert [part.item() for part in found[:4]] == [0, 1, 1.5, 0]
        assert found.unusual == []
