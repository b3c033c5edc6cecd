"""What every call goes through: it is counted once, and answered with whatever it raises."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
from opentelemetry.trace import NoOpTracer
from prometheus_client import CollectorRegistry

from server.config import Settings
from server.errors import Draining, InternalError, Overloaded, ServerError
from server.telemetry.calls import Call, current_call
from server.telemetry.logs import CallLog
from server.telemetry.metrics.call import CallMetrics
from server.telemetry.observed import CLASS_KEY, ObservedCalls
from server.telemetry.tracing import Tracing

METHOD = "dragoman.v1.TranslationService/Translate"


class Teller:
    """A caller, with what it was told."""

    system = "grpc"

    def __init__(self, tell_fails: bool = False) -> None:
        self.metadata, self.name, self.deadline = {"x-request-id": "mine"}, "host", 12.5
        self.told = list[str]()
        self.refused = list[ServerError]()
        self._tell_fails = tell_fails

    def tell(self, call: Call) -> None:
        if self._tell_fails:
            raise ValueError("gone")
        self.told.append(call.request_id)

    async def refuse(self, call: Call, error: ServerError) -> None:
        self.refused.append(error)

    def leaving(self) -> str:
        return "CANCELLED"


class World:
    """Calls, and what is counted of them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        silent = cast(Settings, SimpleNamespace(log_requests=False, log_labels=False, log_text=False))
        self.calls = ObservedCalls(CallMetrics(self.registry), Tracing(NoOpTracer()), CallLog(silent))

    async def call(self, caller: Teller, raised: BaseException | None = None) -> None:
        async with self.calls.observed(METHOD, caller):
            assert self.calls.running == 1 and current_call().request_id == "mine"
            assert (current_call().caller, current_call().deadline) == ("host", 12.5)
            if raised is not None:
                raise raised

    async def counted(self, code: str, reason: str = "") -> tuple[float | None, float | None, float | None]:
        """Calls with this code, errors with this reason, and calls under way."""
        await asyncio.sleep(0)  # tasks that have ended say so at the loop's next turn
        value = self.registry.get_sample_value
        of_method = {"method": METHOD}
        return (
            value("dragoman_rpc_requests_total", {**of_method, "code": code}),
            value("dragoman_refusals_total", {"reason": reason}),
            value("dragoman_rpc_in_flight", of_method),
        )


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    assert world.calls.running == 0


async def test_an_answered_call_is_told_how_it_went(world: World) -> None:
    caller = Teller()
    await asyncio.create_task(world.call(caller))
    assert (caller.told, caller.refused) == (["mine"], [])
    assert await world.counted("OK") == (1, None, 0)
    await world.calls.wait_until_idle()


async def test_a_refused_call_is_refused_once_and_counted_by_its_reason(world: World) -> None:
    caller, error = Teller(), Overloaded(9, 8, 1.0)
    await asyncio.create_task(world.call(caller, error))
    assert (caller.told, caller.refused) == ([], [error])
    assert await world.counted("UNAVAILABLE", "OVERLOADED") == (1, 1, 0)


@pytest.mark.parametrize(("metadata", "bulk"), [({}, False), ({CLASS_KEY: "bulk"}, True), ({CLASS_KEY: "chat"}, False)])
async def test_a_call_that_says_so_is_bulk(world: World, metadata: dict[str, str], bulk: bool) -> None:
    caller = Teller()
    caller.metadata = metadata

    async def is_bulk() -> bool:
        async with world.calls.observed(METHOD, caller):
            return current_call().bulk
        raise AssertionError

    assert await asyncio.create_task(is_bulk()) == bulk


@pytest.mark.parametrize("tell_fails", [False, True])
async def test_a_defect_is_told_as_one(world: World, tell_fails: bool, caplog: pytest.LogCaptureFixture) -> None:
    caller = Teller(tell_fails)
    await asyncio.create_task(world.call(caller, None if tell_fails else KeyError("x")))
    assert [type(error) for error in caller.refused] == [InternalError]
    assert await world.counted("INTERNAL", "INTERNAL") == (1, 1, 0)
    assert caplog.records[0].exc_info is not None


async def test_a_caller_that_leaves_is_told_nothing(world: World) -> None:
    caller = Teller()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(world.call(caller, asyncio.CancelledError()))
    assert (caller.told, caller.refused) == ([], [])
    assert await world.counted("CANCELLED") == (1, None, 0)


async def test_calls_that_are_ended_are_told_why(world: World) -> None:
    caller, error = Teller(), Draining()

    async def waits() -> None:
        async with world.calls.observed(METHOD, caller):
            await asyncio.Event().wait()

    task = asyncio.create_task(waits())
    await asyncio.sleep(0)
    world.calls.end(error)
    await task
    assert caller.refused == [error]
    assert await world.counted("UNAVAILABLE", "DRAINING") == (1, 1, 0)


async def test_a_call_that_another_task_ends_is_over(world: World) -> None:
    """As where the generator of a stream is closed by whoever finds it."""
    context = world.calls.observed(METHOD, Teller())
    await asyncio.create_task(context.__aenter__())
    assert world.calls.running == 1
    assert not await context.__aexit__(None, GeneratorExit(), None)
    await world.calls.wait_until_idle()
