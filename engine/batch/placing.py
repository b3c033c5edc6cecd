"""Which row of the cache each hypothesis takes."""

import numpy as np
from numpy.typing import NDArray


def place(parents: NDArray[np.intp]) -> NDArray[np.intp]:
    """Chooses a row for every child so that the fewest rows are copied.

    parents: the row each child continues [children]. Returns each child's row, a permutation of 0..children-1.
    The first child of a row stays in it, if it is still among the live rows. The others overwrite rows that have no
    child there, so that no row is read after it was overwritten.
    """
    children = np.arange(len(parents))
    first = np.empty(max(len(parents), parents.max(initial=-1) + 1), np.intp)
    first[parents[::-1]] = children[::-1]
    stays = (first[parents] == children) & (parents < len(parents))
    rows, free = parents.copy(), np.ones(len(parents), np.bool_)
    free[parents[stays]] = False
    rows[~stays] = np.flatnonzero(free)
    return rows
