"""What targets on a server have in common: its event loop runs in this thread, while an input is tried."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

from tests.fuzz import Attempt
from tests.hostile.fuzz.sending import Errors
from tests.serving import Serving, serving


@contextmanager
def on_server(attempt: Callable[[Serving, bytes], Awaitable[object]], **options: Any) -> Iterator[Attempt]:
    """Tries inputs on one server, which must log no error and keep no call."""
    errors = Errors()
    logging.getLogger().addHandler(errors)
    try:
        with asyncio.Runner() as runner:
            stack = AsyncExitStack()
            server = runner.run(stack.enter_async_context(serving(workers=2, max_waiting=1024, **options)))

            async def alone(data: bytes) -> None:
                await attempt(server, data)
                assert not errors.told, ascii(errors.told[:5])

            try:
                yield lambda data: runner.run(alone(data))
            finally:
                runner.run(stack.aclose())
    finally:
        logging.getLogger().removeHandler(errors)
