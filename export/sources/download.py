"""Files over HTTP, whole or not at all."""

import base64
import gzip
import hashlib
import re
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from tempfile import TemporaryFile
from urllib.error import HTTPError
from urllib.request import urlopen

from export.sources.fetched import SourceError

TIMEOUT_S = 30.0
CHUNK = 1 << 20
AGAIN = "run the command again"


def get(url: str) -> bytes:
    """What lies at a URL. Raises SourceError."""
    return b"".join(_read(url))


def unpack(url: str, file: Path) -> None:
    """Writes what a .gz holds into a new file. Raises SourceError."""
    with TemporaryFile(dir=file.parent) as packed:
        packed.writelines(_read(url))
        packed.seek(0)
        try:
            with gzip.open(packed) as content, file.open("xb") as target:
                shutil.copyfileobj(content, target, CHUNK)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise SourceError(f"{url} cannot be unpacked ({error}): {AGAIN}") from error


def _read(url: str) -> Iterator[bytes]:
    """In pieces. Raises SourceError, also where it ends early, or is not what the storage says it is.

    What fails with a piece outside, such as a full disk, is no fault of the connection, and stays what it is.
    """
    with _opened(url) as response:
        yield from _checked(response, url)


def _checked(response: HTTPResponse, url: str) -> Iterator[bytes]:
    # Google's storage tells the MD5 of what it sends: no secret, but enough against accidents.
    digest, count = hashlib.md5(usedforsecurity=False), 0
    while data := response.read(CHUNK):
        digest.update(data)
        count += len(data)
        yield data
    expected = response.headers.get("Content-Length")
    if expected is not None and count != int(expected):
        raise SourceError(f"{url} ended after {count} of {expected} bytes: {AGAIN}")
    said = re.search(r"md5=([\w+/=]+)", ", ".join(response.headers.get_all("x-goog-hash", [])))
    if said and base64.b64decode(said[1]) != digest.digest():
        raise SourceError(f"{url} was damaged on the way: its MD5 is {digest.hexdigest()}, not what was sent: {AGAIN}")


@contextmanager
def _opened(url: str) -> Iterator[HTTPResponse]:
    try:
        with urlopen(url, timeout=TIMEOUT_S) as response:
            yield response
    except HTTPError as error:
        raise SourceError(f"{url} answers {error.code} {error.reason}: try again later") from error
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error or type(error).__name__
        raise SourceError(f"{url} cannot be fetched ({reason}): check the connection, then {AGAIN}") from error
