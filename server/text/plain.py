"""Plain text as parts: its lines are blocks."""

import re

from server.text.parts import Block, Copied, Part

LINE = re.compile(r"\S(?:[^\n]*\S)?")
"""Without the space around it, which is kept as it is, as line breaks are."""


def read_plain(text: str) -> list[Part]:
    """Raises nothing: any text is one."""
    parts, at = list[Part](), 0
    for line in LINE.finditer(text):
        parts += [Copied(text[at : line.start()]), Block(line.group())]
        at = line.end()
    parts.append(Copied(text[at:]))
    return [part for part in parts if not isinstance(part, Copied) or part.raw]
