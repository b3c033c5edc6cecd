"""LibreTranslate's files: one is sent, and where its translation is comes back."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from starlette.responses import Response

from server.api.documents import Documents
from server.api.methods import Method
from server.http.asked import Asked
from server.http.compatible.detection import READ_CHARACTERS
from server.http.compatible.libretranslate_fields import AUTO, Named, fields_of, required
from server.http.compatible.shelf import KEPT_S, Ready, Shelf
from server.http.documents import MEDIA_TYPES, document_request, whole_document
from server.http.errors import InvalidField, PathNotFound
from server.http.face import Dialect, Route
from server.http.fields import File
from server.http.native import json_response
from server.identity.identity import Scope
from server.telemetry.calls import current_call

FORMATS = {f".{name}": name for name in MEDIA_TYPES}
"""By what the names of files end with."""
MOST_OF_NAME = 100
"""Characters of a file's name that are kept."""


class TranslatedFiles:
    """The two routes."""

    def __init__(self, named: Named, documents: Documents, methods: Iterable[Method]) -> None:
        self._named, self._documents = named, documents
        [self._method] = (one for one in methods if one.name == "TranslateDocument")
        self._shelf = Shelf(documents.most_bytes)

    def routes(self, dialect: Dialect) -> Iterator[Route]:
        """Who has the key of a file may fetch it: clients send no token for that."""
        name = "libretranslate.TranslationService/TranslateDocument"
        yield Route("POST", "/translate_file", name, [Scope.TRANSLATE], dialect, self.translate)
        download = "/download_file/{name}"
        yield Route("GET", download, "libretranslate.Pages/Get", [], dialect, self.download, observed=False)

    async def translate(self, asked: Asked) -> Response:
        fields = await fields_of(asked, files=1)
        file, source, target = _file(fields.get("file")), required(fields, "source"), required(fields, "target")
        ending = PurePosixPath(file.name).suffix.lower()
        if ending not in FORMATS:
            raise InvalidField("file", "Invalid request: file format not supported")
        target = self._named.tag("target", str(target))
        if source == AUTO:
            text = await self._documents.first_texts(FORMATS[ending], file.content, READ_CHARACTERS)
            [best] = await self._named.best([text])
            source = best.language
        else:
            source = self._named.tag("source", str(source))
        self._named.check_pair(source, target)
        content = file.content
        if source != target:
            request = document_request(self._method, FORMATS[ending], content, source, target)
            content = (await whole_document(self._method, request)).document
        name = _safe(file.name, target)
        key = self._shelf.put(Ready(name, MEDIA_TYPES[FORMATS[ending]], content), current_call().caller)
        return json_response({"translatedFileUrl": f"{asked.base_url}download_file/{key}.{name}"})

    async def download(self, asked: Asked) -> Response:
        key, _, _ = asked.path_parts["name"].partition(".")
        ready = self._shelf.find(key)
        if ready is None:
            kept = f"files are kept for {KEPT_S / 60:g} minutes at most, by the server that translated them"
            raise PathNotFound(
                f"/download_file/{asked.path_parts['name']}", f"{kept}: send it to /translate_file again"
            )
        headers = {"content-disposition": f'attachment; filename="{ready.name}"', "cache-control": "private, no-store"}
        return Response(ready.content, media_type=ready.media_type, headers=headers)


def _file(value: object) -> File:
    """Raises InvalidField."""
    if not isinstance(value, File):
        raise InvalidField("file", "Invalid request: missing file parameter")
    if not value.name or not value.content.strip():
        raise InvalidField("file", "Invalid request: empty file")
    return value


def _safe(name: str, target: str) -> str:
    """Of a translation, by that of its file: of characters that stand for themselves wherever a name may be."""
    path = PurePosixPath(name.replace("\\", "/"))
    plain = unicodedata.normalize("NFKD", path.stem).encode("ascii", "ignore").decode()
    stem = re.sub(r"[^A-Za-z0-9_-]+", "_", plain).strip("_")[:MOST_OF_NAME] or "document"
    return f"{stem}_{target}{path.suffix.lower()}"
