"""The languages that a model card names: the YAML before README.md, as the Hub reads it."""

import re
from itertools import takewhile
from pathlib import Path

from models.languages import WELL_FORMED

FENCE = "---"
MOST = 1 << 16
"""Characters of a card that are looked at."""
ITEM = re.compile(r"\s*-\s+(.+)")
NO_LANGUAGE = "code"
"""What the Hub calls programs, among languages."""


def card_languages(folder: Path) -> tuple[str, ...]:
    """BCP-47 tags. None, where there is no card, or one that names something else or writes it in a rarer way.

    A line is looked for, so that Norwegian is `no`, which is false in YAML, and a card cannot do more than name tags.
    """
    first, *lines = _beginning(folder / "README.md").splitlines() or [""]
    head = list(takewhile(lambda line: line.rstrip() != FENCE, lines)) if first.rstrip() == FENCE else []
    places = [place for place, line in enumerate(head) if line.startswith("language:")]
    if len(places) != 1:
        return ()
    value = _bare(head[places[0]].partition(":")[2])
    if value.startswith("[") and value.endswith("]"):
        tags = value[1:-1].split(",")
    elif value:
        tags = [value]
    else:
        matches = (ITEM.fullmatch(line) for line in head[places[0] + 1 :])
        tags = [match[1] for match in takewhile(lambda match: match is not None, matches) if match is not None]
    found = tuple(_bare(tag).strip("'\"") for tag in tags)
    return found if all(WELL_FORMED.fullmatch(tag) and tag != NO_LANGUAGE for tag in found) else ()


def _beginning(file: Path) -> str:
    try:
        with file.open(encoding="utf-8", errors="replace") as content:
            return content.read(MOST)
    except OSError:
        return ""


def _bare(value: str) -> str:
    """Without a comment."""
    return value.partition(" #")[0].strip()
