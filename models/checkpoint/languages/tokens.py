"""The languages of multilingual models: one token each, written by every family in its own way.

NLLB      por_Latn    a language (ISO 639-3) and its script
mBART     pt_XX       a language and a territory, which says nothing: all languages have one only
M2M100    __pt__
MADLAD    <2pt>       before a source: what it becomes
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable

from langcodes import standardize_tag
from langcodes.tag_parser import LanguageTagError

from models.languages import WELL_FORMED

STYLES = (
    re.compile(r"(?P<language>[a-z]{3})_(?P<script>[A-Z][a-z]{3})"),
    re.compile(r"(?P<language>[a-z]{2,3})_[A-Z]{2}"),
    re.compile(r"__(?P<language>[a-z]{2,3})__"),
    re.compile(r"<2(?P<language>[a-z]{2,3})(_(?P<script>[A-Z][a-z]{3}))?>"),
)
NEITHER = {"ns": "nso"}
"""What M2M100 calls a language by a code that is another's or nobody's."""


def language_tokens(tokens: Iterable[str]) -> dict[str, str]:
    """BCP-47 tag -> the token that names the language, in order of the tokens. Empty where none does.

    tokens: control tokens of a vocabulary; the others may look like one

    The script is in a tag where the vocabulary has the language in several: "pt" for `por_Latn`, but "zh-Hant" for
    `zho_Hant`. A language of a family that other tokens share keeps its own tag, one that stands for the whole family
    has the family's: "ar" for `arb_Arab`, "arz" for `arz_Arab`.
    """
    known = list(tokens)
    matches = max(
        ([style.fullmatch(token) for token in known] for style in STYLES), key=lambda found: -found.count(None)
    )
    said = [(match["language"], match.groupdict().get("script")) for match in matches if match is not None]
    scripts = Counter(language for language, _ in set(said))
    families: defaultdict[str, set[str]] = defaultdict(set)
    for language, _ in said:
        families[_tag(language, macro=True)].add(language)
    found: dict[str, str] = {}
    for match, (language, script) in zip([match for match in matches if match is not None], said, strict=True):
        family = _tag(language, macro=True)
        tag = family if len(families[family]) == 1 else _tag(language)
        tag = f"{tag}-{script}" if script is not None and scripts[language] > 1 else tag
        if WELL_FORMED.fullmatch(tag) and tag not in found:
            found[tag] = match.string
    return found


def _tag(language: str, macro: bool = False) -> str:
    try:
        return standardize_tag(NEITHER.get(language, language), macro=macro)
    except LanguageTagError:
        return language
