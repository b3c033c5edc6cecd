"""Plain text as parts: its lines are blocks."""

import re

from server.text.parts import Block, Copied, Part

BETWEEN_LINES = re.compile(r"(^\s+|\s*\n\s*|\s+$)")
"""What is kept as it is: the line breaks, and the space around them."""


def read_plain(text: str) -> list[Part]:
    """Raises nothing: any text is one."""
    pieces = (piece for piece in BETWEEN_LINES.split(text) if piece)
    return [Copied(piece) if piece.isspace() else Block(piece) for piece in pieces]
