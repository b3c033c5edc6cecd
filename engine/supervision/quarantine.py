"""Requests that have made an engine fail, remembered by their hash."""

from collections import OrderedDict
from hashlib import sha256

from engine.request import Request, Translate

MOST = 1000
"""Hashes that are remembered; then the oldest goes."""


class Quarantine:
    """Requests that are refused. Not safe for threads by itself."""

    def __init__(self) -> None:
        self._hashes: OrderedDict[str, None] = OrderedDict()

    def add(self, request: Request) -> str:
        """Refuses equal ones from now on. Returns the hash."""
        hashed = hash_of(request)
        self._hashes[hashed] = None
        if len(self._hashes) > MOST:
            self._hashes.popitem(last=False)
        return hashed

    def __contains__(self, request: Request) -> bool:
        """Most often there are none, and then nothing is hashed."""
        return bool(self._hashes) and hash_of(request) in self._hashes


def hash_of(request: Request) -> str:
    """Of what the engine is asked: the source, and how it is decoded."""
    decoding = request.decoding if isinstance(request, Translate) else None
    return sha256(repr((type(request).__name__, request.source_ids, decoding)).encode()).hexdigest()
