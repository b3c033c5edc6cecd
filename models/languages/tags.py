"""Language tags (BCP 47)."""

import re
from collections.abc import Iterator, Mapping, Sequence

from models.languages.codes import OTHER_NAMES, SCRIPTS, TAGS

UNDETERMINED = "und"
"""The tag of BCP 47 for a language that is not known: a model's only one, so that no request has to name it."""
WELL_FORMED = re.compile(r"[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8})*")


def choose(tag: str, supported: Sequence[str]) -> str | None:
    """The supported tag that serves a wanted one; the only one, where the tag is empty. None: nothing fits."""
    if not tag:
        return supported[0] if len(supported) == 1 else None
    return lookup(tag, supported)


def lookup(tag: str, supported: Sequence[str]) -> str | None:
    """The supported tag that serves a wanted one: "en-GB" is served by "en". None: nothing fits.

    A language may be written as others write it: "por_Latn" (NLLB), "pt_XX" (mBART), "por"; and its script may be left
    open: "zh-TW". Case tells apart only what nothing else does, such as the "pt-BR" and "pt-br" of a model that has
    codes for both.
    """
    if tag in supported:
        return tag
    known = {name.lower(): name for name in reversed(supported)}
    if (exact := known.get(tag.lower().replace("_", "-"))) is not None:
        return exact
    return next((found for way in _ways(tag.lower()) if (found := _lookup(way, known)) is not None), None)


def _ways(tag: str) -> Iterator[str]:
    """How BCP 47 may write what is meant."""
    if not WELL_FORMED.fullmatch(tag := tag.replace("_", "-")):
        return
    language, *rest = tag.split("-")
    names = [language, *([TAGS[language].lower()] if language in TAGS else [])]
    for name in (*names, *(OTHER_NAMES[name] for name in names if name in OTHER_NAMES)):
        if script := SCRIPTS.get("-".join((name, *rest[:1]))):
            yield "-".join((name, script, *rest))
        yield "-".join((name, *rest))


def _lookup(tag: str, known: Mapping[str, str]) -> str | None:
    """By RFC 4647, section 3.4: subtags are dropped from the end until one fits."""
    subtags = tag.split("-")
    while subtags:
        if "-".join(subtags) in known:
            return known["-".join(subtags)]
        subtags.pop()
        if subtags and len(subtags[-1]) == 1:  # it only introduces the subtag that is gone
            subtags.pop()
    return None
