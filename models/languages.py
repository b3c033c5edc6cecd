"""Language tags (BCP 47)."""

import re
from collections.abc import Sequence

WELL_FORMED = re.compile(r"[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8})*")


def choose(tag: str, supported: Sequence[str]) -> str | None:
    """The supported tag that serves a wanted one; the only one, where the tag is empty. None: nothing fits."""
    if not tag:
        return supported[0] if len(supported) == 1 else None
    return lookup(tag, supported)


def lookup(tag: str, supported: Sequence[str]) -> str | None:
    """The supported tag that serves a wanted one, by RFC 4647, section 3.4: "en-GB" is served by "en".

    Subtags are dropped from the end until one fits. Upper and lower case are the same. None: nothing fits.
    """
    if not WELL_FORMED.fullmatch(tag):
        return None
    known = {name.lower(): name for name in supported}
    subtags = tag.lower().split("-")
    while subtags:
        if "-".join(subtags) in known:
            return known["-".join(subtags)]
        subtags.pop()
        if subtags and len(subtags[-1]) == 1:  # it only introduces the subtag that is gone
            subtags.pop()
    return None
