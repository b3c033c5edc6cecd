"""The steps of a lane that the host feeds, one for each number of rows and of candidates."""

from engine.cuda.lanes.lane import Lane
from engine.cuda.stepping.ahead import Step
from engine.cuda.stepping.buckets import FEW_CANDIDATES, StepGraph, row_buckets
from engine.cuda.stepping.whole_rows import WholeRows


class StepSizes:
    """All of them. Few candidates or the most there are."""

    def __init__(self, graph: StepGraph, lane: Lane, rows: int, whole_rows: WholeRows) -> None:
        self._graph, self._lane, self._rows, self._whole_rows = graph, lane, rows, whole_rows
        self._most, self._few = graph.most_candidates, min(FEW_CANDIDATES, graph.most_candidates)
        counts = sorted({self._few, self._most})
        self._steps = {(n, k): Step(lane, graph.bucket(lane, n, k)) for n in row_buckets(rows) for k in counts}
        self._fitting: dict[tuple[int, int], Step] = {}
        self._with_whole_rows: dict[Step, Step] = {}

    def all(self) -> list[Step]:
        """The largest first."""
        return list(reversed(self._steps.values()))

    def pairs(self, other: Lane) -> list[tuple[Step, Step]]:
        """Those that find few candidates, each with one of the same size in another lane."""
        sizes = ((n, self._few) for n in row_buckets(self._rows))
        return [(self._steps[size], Step(other, self._graph.bucket(other, *size))) for size in sizes]

    def fitting(self, live: int, k: int) -> Step:
        """The smallest that has so many rows and candidates, or all candidates that there are."""
        if (live, k) not in self._fitting:
            steps, least = self._steps.items(), min(k, self._most)
            self._fitting[live, k] = next(step for (rows, found), step in steps if rows >= live and found >= least)
        return self._fitting[live, k]

    def with_whole_rows(self, step: Step) -> Step:
        """The same step, which gives whole rows too."""
        if step not in self._with_whole_rows:
            rows, k = step.bucket.rows, step.bucket.k
            bucket = self._graph.bucket(step.lane, rows, k, self._whole_rows.outputs(rows))
            self._with_whole_rows[step] = Step(step.lane, bucket)
        return self._with_whole_rows[step]
