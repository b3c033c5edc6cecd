"""Bytes to every method of a real server on loopback, whose decoder copies: the first of them says to which."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.fuzz import Attempt
from tests.fuzz.served import on_server
from tests.hostile.fuzz.messages import METHODS, Sent
from tests.hostile.fuzz.sending import answer
from tests.serving import Serving


@contextmanager
def trying() -> Iterator[Attempt]:
    with on_server(attempt) as one:
        yield one


async def attempt(server: Serving, data: bytes) -> None:
    """Each is answered, or refused with a reason."""
    if data:
        path = list(METHODS)[data[0] % len(METHODS)]
        await answer(server.channel, Sent(0, path, METHODS[path][0], data[1:]))
