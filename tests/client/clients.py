"""Both Python clients, called alike."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dragoman import AsyncClient, Client, DeadlineExceeded, TlsOptions

Target = str | Sequence[str]
Call = Callable[..., Any]
"""Calls one method of one of the clients: (target, method, *its arguments)."""


OF_CLIENTS = ("wait_for_ready", "hedge_after_s")
"""Options that are not the call's but the client's."""


def call_sync(target: Target, method: str, *args: Any, tls: TlsOptions | None = None, **options: Any) -> Any:
    with Client(target, tls=tls, **_of_client(options)) as client:
        result = getattr(client, method)(*args, **options)
        return list(result) if method.startswith("stream_") else result


def call_async(target: Target, method: str, *args: Any, tls: TlsOptions | None = None, **options: Any) -> Any:
    async def run() -> Any:
        async with AsyncClient(target, tls=tls, **_of_client(options)) as client:
            result = getattr(client, method)(*args, **options)
            return [event async for event in result] if method.startswith("stream_") else await result

    return asyncio.run(run())


def call_late(call: Call, reached: Callable[[], bool], *asked: Any, **options: Any) -> None:
    """Makes a call that nobody answers. Its deadline passes early, unless that is before it has reached anybody."""
    for timeout_s in (0.3, 3.0, 30.0):
        with pytest.raises(DeadlineExceeded):
            call(*asked, timeout_s=timeout_s, **options)
        if reached():
            return


def _of_client(options: dict[str, Any]) -> dict[str, Any]:
    return {name: options.pop(name) for name in OF_CLIENTS if name in options}
