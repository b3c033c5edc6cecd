"""Which row of the cache each hypothesis takes."""

from collections.abc import Sequence


def place(parents: Sequence[int]) -> list[int]:
    """Chooses a row for every child so that the fewest rows are copied.

    parents: the row each child continues. Returns each child's row, a permutation of 0..len(parents)-1.
    The first child of a row stays in it, if it is still among the live rows. The others overwrite rows that have no
    child there, so that no row is read after it was overwritten.
    """
    live = len(parents)
    rows = [-1] * live
    taken = [False] * live
    for child, parent in enumerate(parents):
        if parent < live and not taken[parent]:
            rows[child] = parent
            taken[parent] = True
    free = (row for row in range(live) if not taken[row])
    return [next(free) if row < 0 else row for row in rows]
