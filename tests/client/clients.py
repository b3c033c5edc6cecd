"""Both Python clients, called alike."""

import asyncio
from collections.abc import Callable
from typing import Any

from dragoman import AsyncClient, Client, TlsOptions

Call = Callable[..., Any]
"""Calls one method of one of the clients: (target, method, *its arguments)."""


def call_sync(target: str, method: str, *args: Any, tls: TlsOptions | None = None, **options: Any) -> Any:
    with Client(target, tls=tls) as client:
        result = getattr(client, method)(*args, **options)
        return list(result) if method == "stream_translate" else result


def call_async(target: str, method: str, *args: Any, tls: TlsOptions | None = None, **options: Any) -> Any:
    async def run() -> Any:
        async with AsyncClient(target, tls=tls) as client:
            result = getattr(client, method)(*args, **options)
            return [event async for event in result] if method == "stream_translate" else await result

    return asyncio.run(run())
