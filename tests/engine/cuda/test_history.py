"""Slots and histories against what each row ought to read, while rows join, leave and change places."""

import random
from collections import Counter

import numpy as np
import pytest

from engine.cuda.placing.history import History, Indices
from engine.cuda.placing.rows import Rows

PLACES = 12


class Written:
    """A history, the places that it speaks of, and beside them what each row has been fed."""

    def __init__(self, rows: int) -> None:
        self.rows = Rows(rows)
        table = np.empty(History.table_numbers(rows, PLACES), np.int32)
        self.history = History(self.rows, PLACES, table, self._settle)
        self.places = np.full((rows + 1, PLACES), -1)
        self.sources = np.zeros(rows + 1, np.int64)
        self.expected: list[list[int]] = []
        """What each live row was fed."""
        self.of_sources: list[int] = []
        self.sent = self.history.history.copy()
        """The history as a device has it."""
        self.settled = 0
        self._tokens = 0

    def _settle(self, sources: Indices, targets: Indices, places: Indices) -> None:
        self.places[targets, places] = self.places[sources, places]
        self.settled += 1

    def join(self) -> None:
        row = self.rows.join(source_length=3)
        self.history.join(row)
        self._tokens += 1
        self.sources[self.history.source_slots[row]] = self._tokens
        self.of_sources.append(self._tokens)
        self.expected.append([])

    def take(self, parents: list[int]) -> None:
        for taken in (self.history, self.rows):
            taken.take(np.array(parents, np.intp))
        self.expected = [self.expected[parent].copy() for parent in parents]
        self.of_sources = [self.of_sources[parent] for parent in parents]

    def step(self) -> None:
        """Feeds every row a token that nothing else is fed, after it has looked at all before."""
        changed, live = self.history.changed(), self.rows.live
        self.sent[changed] = self.history.history[changed]
        np.testing.assert_array_equal(self.sent, self.history.history)
        slots, source_slots = self.history.slots, self.history.source_slots
        assert len(set(slots[:live].tolist())) == live
        assert (slots[live:] == self.history.spare).all() and (source_slots[live:] == self.history.spare).all()
        assert (slots[:live] < self.history.spare).all() and (source_slots[:live] < self.history.spare).all()
        for row, expected in enumerate(self.expected):
            places = np.arange(len(expected))
            assert self.places[self.sent[slots[row], places], places].tolist() == expected
            assert self.sources[source_slots[row]] == self.of_sources[row]
            self._tokens += 1
            assert self.rows.positions[row] == len(expected)
            self.places[slots[row], len(expected)] = self._tokens
            expected.append(self._tokens)
        self.rows.advance()

    def end_those_without_room(self) -> None:
        self.take([row for row, fed in enumerate(self.expected) if len(fed) < PLACES])


@pytest.mark.parametrize("rows", [1, 2, 5, 8, 17])
def test_every_row_reads_what_it_was_fed(rows: int) -> None:
    settled = 0
    for seed in range(20):
        chance, written = random.Random(seed), Written(rows)
        for _ in range(120):
            live = written.rows.live
            if live and chance.random() < 0.5:
                staying = chance.sample(range(live), k=chance.randint(live // 3, live))
                room = chance.choice((rows - len(staying), min(2, rows - len(staying))))
                children = staying + (chance.choices(staying, k=chance.randint(0, room)) if staying else [])
                written.take(chance.sample(children, k=len(children)))
            if chance.random() < 0.4:
                for _ in range(chance.randint(0, rows - written.rows.live)):
                    written.join()
            written.step()
            written.end_those_without_room()
        settled += written.settled
    assert (settled > 0) == (rows > 1)


def test_beams_that_stay_as_wide_need_no_copies() -> None:
    chance, written = random.Random(0), Written(rows=24)
    for _ in range(300):
        of_sentences = Counter(written.of_sources)
        for count in (6 - len(of_sentences), 0):
            for _ in range(count if chance.random() < 0.3 else 0):
                written.join()
        groups = dict[int, list[int]]()
        for row, source in enumerate(written.of_sources):
            groups.setdefault(source, []).append(row)
        written.take([row for rows in groups.values() for row in sorted(chance.choices(rows, k=4))])
        written.step()
        written.end_those_without_room()
    assert written.settled == 0


def test_greedy_rows_change_no_history() -> None:
    written = Written(rows=4)
    for _ in range(3):
        written.join()
    written.step()
    for parents in ([0, 2], [0, 1], [1, 0]):
        written.take(parents)
        assert written.history.changed() == slice(0, 0)
        written.step()
    written.join()
    assert written.history.changed() == slice(0, 0)


def test_a_slot_that_is_still_read_is_not_given_to_another_sentence() -> None:
    written = Written(rows=3)
    written.join()
    written.step()
    written.take([0, 0])
    written.step()
    written.take([1])  # it reads its first token in the slot of the row that is gone
    written.join()
    written.step()
    assert written.settled == 0
    written.join()
    assert written.settled == 1
    written.step()
    written.step()
