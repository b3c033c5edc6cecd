"""Asking the engine for something of every source of a call."""

from collections.abc import Awaitable, Callable, Sequence

from server.translation.sharing.waiting import Waiting
from server.translation.sources import SourceText

Ask = Callable[[SourceText], Waiting]
"""Asks the engine for something of a source."""
AskAll = Callable[[Sequence[SourceText]], Awaitable[list[Waiting]]]
"""The same of all sources of a call, or of none: raises ServerError."""


def each(ask: Ask, *checks: Callable[[Sequence[SourceText]], None]) -> AskAll:
    """Asks for one source after another. checks: raise ServerError where they are not to be asked for."""

    async def ask_all(sources: Sequence[SourceText]) -> list[Waiting]:
        for check in checks:
            check(sources)
        return [ask(source) for source in sources]

    return ask_all
