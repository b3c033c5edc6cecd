"""Which row of the cache each hypothesis takes."""

from collections.abc import Sequence


def place(parents: Sequence[int]) -> list[int]:
    """Chooses a row for every child so that the fewest rows are copied.

    parents: the row each child continues [children]. Returns each child's row, a permutation of 0..children-1.
    The first child of a row stays in it, if it is still among the live rows. The others overwrite rows that have no
    child there, so that no row is read after it was overwritten.
    """
    rows, free = list[int](), set(range(len(parents)))
    for parent in parents:
        rows.append(parent if parent in free else -1)
        free.discard(parent)
    left = iter(sorted(free))
    return [next(left) if row < 0 else row for row in rows]
