"""How a long step says what it is at."""

from collections.abc import Callable

Tell = Callable[[str], None]
"""Shows a line, which the next one may replace."""
