"""Typographic characters that many vocabularies lack."""

from models.tokenizers.sentencepiece_pair import SentencePiecePair

TYPOGRAPHY = {
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2039\u203a\u2032\u00b4", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033", '"'),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\u2022", "-"),
    # Set without spaces in English, it still parts two clauses: as a hyphen it would join two words.
    **dict.fromkeys("\u2014\u2015", " - "),
    **dict.fromkeys("\u00a0\u2002\u2003\u2007\u2009\u200a\u202f\u3000\u2028\u2029", " "),
    **dict.fromkeys("\u00ad\u200b\u200c\u200d\u2060\ufeff", ""),
    "\u2026": "...",
    "\u2044": "/",
}
"""Typographic characters that many vocabularies lack, and the ASCII that says the same."""


def normalization_table(tokenizer: SentencePiecePair) -> dict[str, str]:
    """The part of TYPOGRAPHY that this vocabulary needs.

    A character whose pieces it does not know, even after SentencePiece's own normalisation, and whose replacement it
    does know.
    """

    def known(text: str) -> bool:
        return tokenizer.spec.unknown_id not in tokenizer.encode(text)

    return {found: ascii_ for found, ascii_ in TYPOGRAPHY.items() if not known(found) and known(ascii_)}
