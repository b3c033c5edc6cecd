"""Requests that have made an engine fail, remembered by their hash."""

from collections import OrderedDict
from dataclasses import replace
from hashlib import sha256

from engine.request import Request, Score, Translate

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
    """Of what the engine is asked: the source, and what becomes of it. With any seed: most are drawn."""
    asked: tuple[object, ...] = ()
    if isinstance(request, Translate):
        asked = replace(request.decoding, seed=0), request.rules.fed_ids
    elif isinstance(request, Score):
        asked = request.targets, request.fed_ids
    return sha256(repr((type(request).__name__, request.source_ids, *asked)).encode()).hexdigest()
