"""The hypotheses of a beam search as a tree, from what was written down of its steps."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from engine.request import Hypothesis
from inspection.recorded import Step


class Fate(Enum):
    """What became of a hypothesis."""

    LIVED = "lived"
    """It went on."""
    DIED = "died"
    """Others were better, or the search was over."""
    RESULT = "result"
    """The search gave it as one of its results."""


@dataclass(slots=True, eq=False)
class Node:
    """A hypothesis after one of its tokens."""

    depth: int
    """Tokens that it has; those of the prefix, which nobody chose, are not counted."""
    token: int
    """The last one."""
    log_prob: float | None
    """Of that one. None: it was forced, or something made it better than it was."""
    total: float
    """sum(log p) of all of them, as far as those are known."""
    parent: "Node | None"
    children: list["Node"] = field(default_factory=list)
    step: int | None = None
    """The step that it was fed in; None: it was fed no more."""
    row: int = 0
    """Its row there."""
    score: float | None = None
    """Of a result: what the search ranked it by."""
    rank: int | None = None
    """Of a result, from 0."""

    @property
    def fate(self) -> Fate:
        if self.rank is not None:
            return Fate.RESULT
        return Fate.LIVED if self.children else Fate.DIED

    @property
    def path(self) -> list["Node"]:
        """From behind the root to it."""
        found, node = list[Node](), self
        while node.parent is not None:  # no recursion: a target may have more tokens than Python has depth
            found.append(node)
            node = node.parent
        return found[::-1]


def grow(steps: Sequence[Step], prefix: int, hypotheses: Sequence[Hypothesis]) -> Node:
    """The root, which is what was fed before any token was chosen.

    steps: of one search, from its first. prefix: tokens of that. hypotheses: what the search found, best first
    """
    root = Node(0, int(steps[prefix - 1].fed[0]), None, 0.0, None, step=prefix - 1)
    before = [root]
    for index in range(prefix, len(steps)):
        last, step = steps[index - 1], steps[index]
        parents = range(len(step.fed)) if last.parents is None else last.parents
        fed = zip(parents, step.fed.tolist(), strict=True)
        before = [_child(before[parent], last, token, index, row) for row, (parent, token) in enumerate(fed)]
    for rank, hypothesis in enumerate(hypotheses):
        node = root
        for token in hypothesis.token_ids:
            node = next((child for child in node.children if child.token == token), None) or _end(node, steps, token)
        node.rank, node.score = rank, hypothesis.score
    return root


def levels(root: Node) -> list[list[Node]]:
    """All nodes, by their depth; at each the most probable first."""
    found, level = [], [root]
    while level:
        found.append(level)
        level = sorted((child for node in level for child in node.children), key=lambda node: -node.total)
    return found


def best_path(root: Node) -> list[Node]:
    """The best result, token by token."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.rank == 0:
            return node.path
        waiting += node.children
    return []


def _child(parent: Node, step: Step, token: int, index: int | None = None, row: int = 0) -> Node:
    """One more token of a hypothesis. step: the one that found it."""
    log_prob = step.log_prob(parent.row, token)
    node = Node(parent.depth + 1, token, log_prob, parent.total + (log_prob or 0.0), parent, step=index, row=row)
    parent.children.append(node)
    return node


def _end(parent: Node, steps: Sequence[Step], token: int) -> Node:
    """The last token of a result, which is fed to nobody."""
    if parent.step is None:  # two at once: the last is forced, and found by no step
        node = Node(parent.depth + 1, token, None, parent.total, parent)
        parent.children.append(node)
        return node
    return _child(parent, steps[parent.step], token)
