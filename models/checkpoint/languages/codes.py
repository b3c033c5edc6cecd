"""The languages of a multilingual Marian model: tokens such as `>>fra<<`, one of which begins each source.

https://huggingface.co/docs/transformers/model_doc/marian#multilingual-models
"""

from collections.abc import Mapping

from langcodes import standardize_tag
from langcodes.tag_parser import LanguageTagError

from models.languages import WELL_FORMED
from models.tokenizers.sentencepiece_pair import LANGUAGE_CODE


def target_codes(ids: Mapping[str, int]) -> dict[str, str]:
    """The vocabulary's codes by the language they name in BCP 47's way: "fr" for `>>fra<<`, "pt-BR" for `>>pt_br<<`.

    Of two codes for a language the one that is its tag, else the one with the lower id has it; the other one goes under
    what it says itself. A code that is no tag has no language, but may still be written into a text.
    """
    codes = [piece for piece in sorted(ids, key=lambda piece: ids[piece]) if LANGUAGE_CODE.fullmatch(piece)]
    found: dict[str, str] = {}
    for code in sorted(codes, key=lambda code: _said(code) != _tag(code)):
        for tag in (_tag(code), _said(code)):
            if WELL_FORMED.fullmatch(tag) and tag not in found:
                found[tag] = code
                break
    return {tag: code for tag, code in sorted(found.items(), key=lambda entry: ids[entry[1]])}


def _said(code: str) -> str:
    return code[2:-2].replace("_", "-")


def _tag(code: str) -> str:
    try:
        return standardize_tag(_said(code))
    except LanguageTagError:
        return _said(code)
