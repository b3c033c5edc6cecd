"""What tests of the HTTP port ask with: httpx for requests that are right, and bytes for those that are not."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tests.fakes import WAIT_S
from tests.serving import Serving, serving

TRANSLATE = "/dragoman.v1.TranslationService/Translate"
ENCODE = "/dragoman.v1.EncodingService/Encode"
STREAM = "/v1/translate:stream"
JSON = "application/json"


@asynccontextmanager
async def asking(**options: Any) -> AsyncIterator[tuple[Serving, httpx.AsyncClient]]:
    """A server with an HTTP port, and a client of it."""
    async with (
        serving(http=True, **options) as server,
        httpx.AsyncClient(base_url=server.url, timeout=WAIT_S, trust_env=False) as client,
    ):
        yield server, client


def translate_json(*contents: str, **more: Any) -> dict[str, Any]:
    return {"contents": contents, "targetLanguageCode": "pt", **more}


def reason(response: httpx.Response) -> str:
    """Of an error in our own words."""
    [info] = [one for one in response.json()["details"] if one["@type"].endswith("ErrorInfo")]
    found: str = info["reason"]
    return found


async def sent(server: Serving, data: bytes, *more: bytes, pause_s: float = 0.0) -> bytes:
    """All that a server answers to bytes until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
    try:
        async with asyncio.timeout(WAIT_S):
            writer.write(data)
            for part in more:
                await asyncio.sleep(pause_s)
                writer.write(part)
            return await reader.read()
    finally:
        writer.close()


def head(path: str, headers: Mapping[str, str], method: str = "POST", host: str = "localhost") -> bytes:
    """Of a request."""
    lines = [f"{method} {path} HTTP/1.1", f"host: {host}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])
