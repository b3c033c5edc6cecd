"""Mozilla's storage: compressed models, and the list of them that `db/updater.py` of mozilla/translations writes."""

import base64
import gzip
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.export.sources.http_server import Reply, serving

ROLES = {
    "model.": "model",
    "lex.": "lexicalShortlist",
    "vocab.": "vocab",
    "srcvocab.": "srcVocab",
    "trgvocab.": "trgVocab",
}


class Storage:
    """Models, on a server."""

    def __init__(self) -> None:
        self.url = ""
        self.models: dict[str, list[dict[str, Any]]] = {}
        self.files: dict[str, bytes] = {}
        """By path."""
        self.requests: list[str] = []
        self.broken: set[str] = set()
        """Endings of the paths that break off in the middle."""
        self.damaged: set[str] = set()
        """Endings of the paths of which another content arrives than is stored."""

    @property
    def registry(self) -> str:
        return f"{self.url}/db/models.json"

    def add(self, pair: str, architecture: str, status: str | None, files: Mapping[str, bytes]) -> dict[str, Any]:
        """Publishes a model. Returns its record."""
        source, _, target = pair.partition("-")
        described: dict[str, dict[str, object]] = {}
        for name, data in files.items():
            path = f"models/{pair}/run_{architecture}_KJ23-iDVTcymG1ZldWY17w/exported/{name}.gz"
            self.files[f"/{path}"] = gzip.compress(data, compresslevel=1)
            role = next(role for beginning, role in ROLES.items() if name.startswith(beginning))
            described[role] = {"path": path}
            if role == "model":
                digest = hashlib.sha256(data).hexdigest()
                described[role] |= {"uncompressedSize": len(data), "uncompressedHash": digest}
        record = {
            "architecture": architecture,
            "releaseStatus": status,
            "sourceLanguage": source,
            "targetLanguage": target,
            "files": described,
            "modelStatistics": {"parameters": 16_907_062},
        }
        self.models.setdefault(pair, []).append(record)
        return record

    def answer(self, path: str, headers: Mapping[str, str]) -> Reply:
        self.requests.append(path)
        if path == "/db/models.json":
            listed = {"generated": "2026-11-20T00:44:58Z", "baseUrl": self.url, "models": self.models}
            return Reply(body=json.dumps(listed, indent=2).encode())
        if path not in self.files:
            return Reply(404)
        data = self.files[path]
        digest = base64.b64encode(hashlib.md5(data).digest()).decode()
        send = len(data) // 2 if path.endswith(tuple(self.broken)) else None
        if path.endswith(tuple(self.damaged)):
            data = gzip.compress(b"something else")
        return Reply(body=data, headers={"x-goog-hash": f"md5={digest}"}, send=send)


@contextmanager
def storage() -> Iterator[Storage]:
    """Without models."""
    served = Storage()
    with serving(served.answer) as served.url:
        yield served


def files_of(folder: Path) -> dict[str, bytes]:
    """The files of a model of Firefox, by name."""
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name.startswith(tuple(ROLES))}
