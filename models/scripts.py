"""What languages are written in, as far as characters tell. A language that is not listed here is not judged."""

import unicodedata
from functools import cache, lru_cache

_NAMES = {
    "Arab": "ARABIC",
    "Armn": "ARMENIAN",
    "Beng": "BENGALI",
    "Cyrl": "CYRILLIC",
    "Deva": "DEVANAGARI",
    "Ethi": "ETHIOPIC",
    "Geor": "GEORGIAN",
    "Grek": "GREEK",
    "Gujr": "GUJARATI",
    "Guru": "GURMUKHI",
    "Hans": "CJK BOPOMOFO",
    "Hant": "CJK BOPOMOFO",
    "Hebr": "HEBREW",
    "Jpan": "CJK HIRAGANA KATAKANA KATAKANA-HIRAGANA HALFWIDTH",
    "Khmr": "KHMER",
    "Knda": "KANNADA",
    "Kore": "CJK HANGUL",
    "Laoo": "LAO",
    "Latn": "LATIN",
    "Mlym": "MALAYALAM",
    "Mymr": "MYANMAR",
    "Orya": "ORIYA",
    "Sinh": "SINHALA",
    "Taml": "TAMIL",
    "Telu": "TELUGU",
    "Thai": "THAI",
    "Tibt": "TIBETAN",
}
SCRIPTS = {script: frozenset(names.split()) for script, names in _NAMES.items()}
"""Scripts (ISO 15924): the first words of the Unicode names of their letters."""
LATIN = SCRIPTS["Latn"]
MOST_FAMILIAR = 8192
"""Characters that are remembered for each set of scripts: texts have no more than their vocabularies."""

_LANGUAGES = """
    Latn: af az bs ca ceb cs cy da de en eo es et eu fi fil fr ga gl ha hr ht hu id ig is it jv la lb lt lv mg ms mt nb
    Latn: nl nn no oc pl pt ro sk sl so sq sv sw tl tr uz vi wo xh yo zu
    Cyrl: be bg kk ky mk mn ru tg tt uk
    Arab: ar ckb fa ps sd ug ur
    Hebr: he yi
    Deva: hi mr ne sa
    Beng: as bn
    Ethi: am ti
    Armn: hy  Geor: ka  Grek: el  Gujr: gu  Guru: pa  Hans: zh  Jpan: ja  Khmr: km  Knda: kn  Kore: ko  Laoo: lo
    Mlym: ml  Mymr: my  Orya: or  Sinh: si  Taml: ta  Telu: te  Thai: th  Tibt: bo
"""


def _by_language() -> dict[str, str]:
    found, script = dict[str, str](), ""
    for word in _LANGUAGES.split():
        if word.endswith(":"):
            script = word[:-1]
        else:
            found[word] = script
    return found


SCRIPT_OF = _by_language()
"""The script that a language is written in where its tag names none (CLDR's likely subtags)."""


@lru_cache(maxsize=1024)
def letters_of(tag: str) -> frozenset[str]:
    """What `script` says of the letters of a language by its tag (BCP 47). None, if it is not known."""
    language, *subtags = tag.replace("_", "-").split("-")
    named = next((subtag.title() for subtag in subtags if len(subtag) == 4 and subtag.isalpha()), "")
    return SCRIPTS.get(named or SCRIPT_OF.get(language.lower(), ""), frozenset())


def is_written_in(text: str, expected: frozenset[str]) -> bool:
    """Whether `script` says of every letter of a text what is expected."""
    familiar = _familiar(expected)
    if familiar.issuperset(text):  # most texts have the same few characters
        return True
    new = set(text) - familiar
    known = {character for character in new if not character.isalpha() or script(character) in expected}
    if len(familiar) < MOST_FAMILIAR:
        familiar |= known
    return len(known) == len(new)


@cache
def _familiar(expected: frozenset[str]) -> set[str]:
    """Characters of texts so far that are as expected, or no letters."""
    return set()


@lru_cache(maxsize=8192)
def script(letter: str) -> str:
    """The first word of its name, which is its script's."""
    return unicodedata.name(letter, "").partition(" ")[0]
