"""The steps that beam searches have made, and the paths of their hypotheses through them."""

from collections.abc import Iterable, Iterator

from engine.search.ranking import Step


class Paths:
    """Of the searches of a running batch, which make their steps together. Each has a number."""

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._forgotten = 0
        """Steps before those."""
        self._begun: dict[int, int] = {}
        """The step after which each search began."""

    @property
    def steps(self) -> int:
        """So many were made."""
        return self._forgotten + len(self._steps)

    def begin(self, number: int) -> None:
        """The next step is the first of a search."""
        self._begun[number] = self.steps

    def end(self, numbers: Iterable[int]) -> None:
        """Searches leave. The steps that no other has a token of are forgotten."""
        for number in numbers:
            del self._begun[number]
        old = min(self._begun.values(), default=self.steps) - self._forgotten
        del self._steps[:old]
        self._forgotten += old

    def go_on(self, step: Step) -> None:
        """All make one step more."""
        self._steps.append(step)

    def begun(self, number: int) -> int:
        """The step after which a search began."""
        return self._begun[number]

    def length(self, number: int) -> int:
        """Tokens of each live hypothesis of a search."""
        return self.steps - self._begun[number]

    def tokens(self, number: int, length: int, hypothesis: int) -> tuple[int, ...]:
        """The tokens of a hypothesis that a search had when they were so many."""
        tokens = [step.tokens.item(number, place) for step, place in self._back(number, length, hypothesis)]
        return tuple(reversed(tokens))

    def costs(self, number: int, length: int, hypothesis: int) -> tuple[float, ...]:
        """The costs of the same, token by token."""
        costs = [step.costs.item(number, place) for step, place in self._back(number, length, hypothesis)]
        return tuple(reversed(costs))

    def common(self, number: int, live: int) -> tuple[int, ...]:
        """What all `live` hypotheses of a search begin with: the path of their last common ancestor."""
        hypotheses, length = set(range(live)), self.length(number)
        begun = self._begun[number] - self._forgotten
        while len(hypotheses) > 1:
            length -= 1
            parents = self._steps[begun + length].parents[number]
            hypotheses = {parents.item(hypothesis) for hypothesis in hypotheses}
        return self.tokens(number, length, hypotheses.pop())

    def _back(self, number: int, length: int, hypothesis: int) -> Iterator[tuple[Step, int]]:
        """From one that had so many tokens to its first: the steps, and its place after each."""
        begun = self._begun[number] - self._forgotten
        for step in reversed(self._steps[begun : begun + length]):
            yield step, hypothesis
            hypothesis = step.parents.item(number, hypothesis)
