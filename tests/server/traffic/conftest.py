"""What waits for fractions of a second waits for them in the event loop's own time."""

from tests.virtual_time import VirtualTime


def pytest_asyncio_loop_factories() -> dict[str, type[VirtualTime]]:
    return {"virtual": VirtualTime}
