"""What the Hugging Face Hub answers to huggingface_hub: revisions, trees, files, and its errors."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

from tests.export.sources.http_server import Reply, serving

COMMIT = "5d1c6f2b0e9a4c7d8b3f1a2e6c9d0b4f7a8e5c31"
LARGE = (".safetensors", ".spm", ".bin", ".h5")
"""Kept by Git LFS."""


class Hub:
    """One repository of files, on a server."""

    def __init__(self, repository: str, files: Mapping[str, bytes]) -> None:
        self.url = ""
        self.repository, self.files = repository, dict(files)
        self.requests: list[str] = []
        """Paths, in order."""
        self.error: tuple[int, str] | None = None
        """Status and X-Error-Code of everything but the description of a repository that is gated."""
        self.damaged: set[str] = set()
        """Files of which another content is sent than was uploaded."""
        self.broken: set[str] = set()
        """Files that end in the middle, again and again."""

    def answer(self, path: str, headers: Mapping[str, str]) -> Reply:
        path = urlsplit(path).path
        if not path.startswith("/api/agent"):  # what huggingface_hub asks about its caller
            self.requests.append(path)
        api, resolve = f"/api/models/{self.repository}", f"/{self.repository}/resolve/{COMMIT}/"
        if path.startswith("/cdn/"):
            return self._content(path.removeprefix("/cdn/"), headers)
        if self.error is not None and not (self.error[1] == "GatedRepo" and path.startswith(api)):
            return error(*self.error)
        if path in (f"{api}/revision/main", f"{api}/revision/{COMMIT}"):
            siblings = [{"rfilename": name} for name in self.files]
            return as_json({"id": self.repository, "modelId": self.repository, "sha": COMMIT, "siblings": siblings})
        if path.startswith(f"{api}/revision/"):
            return error(404, "RevisionNotFound")
        if path == f"{api}/tree/{COMMIT}":
            return as_json([entry(name, data) for name, data in self.files.items()])
        if path.startswith(resolve):
            return self._resolve(path.removeprefix(resolve), headers)
        return error(401, "RepoNotFound")

    def _resolve(self, name: str, headers: Mapping[str, str]) -> Reply:
        if name not in self.files:
            return error(404, "EntryNotFound")
        found = {"X-Repo-Commit": COMMIT, "ETag": f'"{git_hash(self.files[name])}"'}
        if not name.endswith(LARGE):
            reply = self._content(name, headers)
            return Reply(reply.status, reply.body, reply.headers | found, reply.send)
        size = str(len(self.files[name]))
        found |= {"X-Linked-Size": size, "X-Linked-ETag": f'"{hashlib.sha256(self.files[name]).hexdigest()}"'}
        storage = self.url.replace("127.0.0.1", "localhost")  # another host, as it is in truth
        return Reply(302, headers=found | {"Location": f"{storage}/cdn/{name}"})

    def _content(self, name: str, headers: Mapping[str, str]) -> Reply:
        data = self.files[name]
        if name in self.damaged:
            data = data[:-1] + bytes([data[-1] ^ 1])
        start = int(headers.get("range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
        send = max(len(data) // 2 - start, 0) if name in self.broken else None
        span = {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if start else {}
        return Reply(206 if start else 200, data[start:], span, send)

    def fetched(self) -> set[str]:
        """Names of the files that were asked for."""
        return {path.partition(f"/resolve/{COMMIT}/")[2] for path in self.requests if "/resolve/" in path}


@contextmanager
def hub(repository: str, files: Mapping[str, bytes]) -> Iterator[Hub]:
    """A Hub with one repository."""
    served = Hub(repository, files)
    with serving(served.answer) as served.url:
        yield served


def error(status: int, code: str) -> Reply:
    return Reply(status, json.dumps({"error": code}).encode(), {"X-Error-Code": code, "X-Error-Message": code})


def as_json(content: object) -> Reply:
    return Reply(body=json.dumps(content).encode(), headers={"Content-Type": "application/json"})


def git_hash(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def entry(name: str, data: bytes) -> dict[str, object]:
    """Of a tree."""
    described = {"type": "file", "oid": git_hash(data), "size": len(data), "path": name}
    if name.endswith(LARGE):
        described["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
    return described
