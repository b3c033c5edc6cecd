"""engine.search.greedy.GreedyRows: rows that are searched side by side, move, and stay for long."""

import random
from math import fsum

import numpy as np
import pytest

from engine.batch.placing import place
from engine.decoder import NOT_FINITE, Ask, Found
from engine.errors import NotFinite
from engine.request import Failed
from engine.search.greedy import STEPS, GreedyRows
from models.decoding import Decoding
from tests.engine.batch.engine_batch import END, Batch, PrefixCache, decode_alone, make_visit
from tests.engine.search.searching import advance
from tests.fakes import rules_of

RULES = rules_of(END)


def found(tokens: list[int]) -> Found:
    return Found(np.array(tokens)[:, None], np.full((len(tokens), 1), -0.5, np.float32))


def open_row(rows: GreedyRows, max_new_tokens: int = 10**6) -> None:
    rows.join()
    rows.search(len(rows.fed) - 1, Decoding(max_new_tokens=max_new_tokens), RULES)


@pytest.mark.parametrize("steps", [STEPS - 2, STEPS - 1, STEPS, STEPS + 1, 2 * STEPS, 5 * STEPS + 3])
def test_a_long_target_is_kept_whole(steps: int) -> None:
    rows = GreedyRows(2)
    open_row(rows)
    for step in range(steps):
        assert advance(rows, found([1 + step])) == []
        assert rows.fed.tolist() == [1 + step]
    assert advance(rows, found([END])) == [0]
    [best] = rows.hypotheses(0)
    assert best.token_ids == (*range(1, steps + 1), END)
    assert best.score == -0.5


def test_rows_come_and_go_for_ever() -> None:
    """A new row at every step, each there for 20 steps: what is behind the last 20 steps is forgotten."""
    rows, targets, chance = GreedyRows(40), list[list[int]](), random.Random(1)
    for step in range(10 * STEPS):
        open_row(rows, max_new_tokens=20)
        targets.append([])
        tokens = [chance.randint(1, 9) for _ in targets]
        for target, token in zip(targets, tokens, strict=True):
            target.append(token)
        over = advance(rows, found(tokens))
        assert over == [row for row, target in enumerate(targets) if len(target) == 20], step
        assert [list(rows.hypotheses(row)[0].token_ids) for row in over] == [targets[row] for row in over]
        stay = [row for row in range(len(targets)) if row not in over]
        chance.shuffle(stay)
        placed = place(stay)
        rows.take(stay, placed, len(stay))
        targets = [targets[parent] for _, parent in sorted(zip(placed, stay, strict=True))]
        assert rows.fed.tolist() == [target[-1] for target in targets]
    assert len(rows.fed) == 19


def test_a_search_that_follows_a_longer_one_ends_at_its_own_limit() -> None:
    rows = GreedyRows(2)
    open_row(rows, max_new_tokens=5)
    open_row(rows, max_new_tokens=2)
    assert [advance(rows, found([1, 1])) for _ in range(2)] == [[], [1]]
    rows.take([0], [0], 1)
    open_row(rows, max_new_tokens=3)
    assert [advance(rows, found([1, 1])) for _ in range(3)] == [[], [], [0, 1]]


def test_as_many_tokens_are_asked_for_as_may_be_suppressed() -> None:
    rows = GreedyRows(3)
    assert rows.ask == Ask(1)
    for suppressed in ((), (4, 5), (4,)):
        rows.join()
        rows.search(len(rows.fed) - 1, Decoding(max_new_tokens=9), rules_of(END, None, (*suppressed, END)))
        assert rows.ask.best == (3 if len(rows.fed) > 1 else 1)
    ids, log_probs = np.array([[4, 5, 6], [4, 5, 6], [4, END, 6]]), np.log(np.array([[0.5, 0.3, 0.2]] * 3, np.float32))
    assert advance(rows, Found(ids, log_probs)) == [2]
    assert rows.fed.tolist() == [4, 6, END]
    assert rows.hypotheses(2)[0].score == pytest.approx(fsum([log_probs[2, 1]]))
    rows.take([], [], 0)
    rows.join()
    assert rows.ask == Ask(1)


class BrokenSource(PrefixCache):
    """What it finds of one source is not finite, after three steps."""

    def end_step(self) -> Found:
        answer = super().end_step()
        for row, (source, position) in enumerate(self.rows):
            if source.source_ids[0] == 9 and position > 3:
                answer.token_ids[row], answer.log_probs[row] = NOT_FINITE, np.nan
        return answer


@pytest.mark.parametrize("num_beams", [1, 3])
def test_numbers_that_are_not_finite_are_the_failure_of_one_request(num_beams: int) -> None:
    broken = make_visit((9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 9, END), num_beams)
    others = [make_visit((8, 7, 6, 5, 4, END), beams) for beams in (1, 2, 1)]
    batch = Batch(BrokenSource)
    for visit in (others[0], broken, *others[1:]):
        batch.engine.admit([visit.request])
    while not batch.engine.idle:
        batch.step()
    [failure] = broken.events
    assert isinstance(failure, Failed)
    assert isinstance(failure.error, NotFinite)
    for visit in others:
        assert (visit.answer.hypotheses, visit.answer.timings.steps) == decode_alone(visit.request)
    assert batch.engine.free_rows == 8
