"""Requests to the HTTP port: the lines of a head, an empty line, the body. Its length and the host come from here."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.fuzz import Attempt
from tests.fuzz.served import on_server
from tests.server.http.asking import sent, status_of
from tests.serving import Serving

NOT_A_DEFECT = {200, *range(400, 500), 503}


@contextmanager
def trying() -> Iterator[Attempt]:
    with on_server(attempt, http=True, request_timeout_s=1.0) as one:
        yield one


async def attempt(server: Serving, data: bytes) -> None:
    """Each is answered with a status that is no defect, in whole characters, or the connection is closed."""
    head, _, body = data.partition(b"\n\n")
    lines = [*head.split(b"\n"), b"host: localhost", b"connection: close", b"content-length: %d" % len(body)]
    answer = b""
    with suppress(ConnectionError):  # closed with what it had not read
        answer = await sent(server, b"\r\n".join(lines) + b"\r\n\r\n" + body)
    if answer:
        assert status_of(answer) in NOT_A_DEFECT, ascii(answer)
        headers, _, content = answer.partition(b"\r\n\r\n")
        if content and b"content-type: application/json" in headers.lower():
            json.dumps(json.loads(content), ensure_ascii=False).encode()
