"""LibreTranslate's API (https://docs.libretranslate.com/api), as its version 1.9 of July 2026 has it.

Programs match its error texts, so they are its words. What it does and we do not: it forces the case and the last
punctuation mark of a source upon its translation.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from starlette.responses import Response

from models.decoding import Options
from server.api.documents import Documents
from server.api.methods import Method
from server.catalog.served_model import MOST_BEAMS
from server.errors import ServerError
from server.http.asked import Asked
from server.http.compatible.detection import Detected
from server.http.compatible.languages import name_of
from server.http.compatible.libretranslate_fields import AUTO, UNKNOWN, Named, fields_of, required
from server.http.compatible.libretranslate_files import FORMATS, TranslatedFiles
from server.http.compatible.texts import Texts
from server.http.errors import InvalidField, http_status, renamed
from server.http.face import Route
from server.http.fields import Fields
from server.http.native import json_response
from server.identity.identity import Scope
from server.text.texts import Shape

TEXT, HTML = "text", "html"
STATUSES = {
    "NO_CREDENTIALS": 400,
    "INVALID_TOKEN": 403,
    "OVERLOADED": 429,
    "WOULD_BE_LATE": 429,
}
WORDS = {
    "NO_CREDENTIALS": "Please contact the server operator to get an API key",
    "INVALID_TOKEN": "Invalid API key",
    "OVERLOADED": "Slowdown: {message}",
    "QUOTA_EXCEEDED": "Slowdown: {message}",
    "WOULD_BE_LATE": "Slowdown: {message}",
    "LANGUAGE_NOT_SUPPORTED": "{language_code} is not supported",
    "TOO_MANY_CONTENTS": "Invalid request: request ({contents}) exceeds text limit ({max_contents})",
}
"""By reason. Of others, our own message."""


class LibreTranslate:
    """Its routes; as a `Dialect`, its keys and errors."""

    def __init__(
        self,
        texts: Texts,
        documents: Documents,
        methods: Sequence[Method],
        keys: bool,
        spec: Callable[[], Mapping[str, Any]],
    ) -> None:
        """keys: callers need one. spec: the document that describes the whole server."""
        self._texts, self._languages, self._keys, self._spec = texts, texts.languages, keys, spec
        self._named = Named(texts)
        self._files = TranslatedFiles(self._named, documents, methods)

    def routes(self) -> Iterator[Route]:
        """All but /health, which is that of every face."""
        translate = "libretranslate.TranslationService/Translate"
        yield Route("POST", "/translate", translate, [Scope.TRANSLATE], self, self.translate)
        yield Route("POST", "/detect", "libretranslate.LanguageService/Detect", [Scope.TRANSLATE], self, self.detect)
        pages: dict[str, Callable[[Asked], Awaitable[Response]]] = {
            "/languages": self.list_languages,
            "/frontend/settings": self.settings,
            "/spec": self.spec,
        }
        for path, page in pages.items():
            yield Route("GET", path, "libretranslate.Pages/Get", [], self, page, observed=False)
        # As argostranslate's own client asks, and older versions answered.
        yield Route("POST", "/languages", "libretranslate.Pages/Get", [], self, self.list_languages, observed=False)
        yield Route("POST", "/suggest", "libretranslate.Pages/Get", [], self, _no_suggestions, observed=False)
        yield from self._files.routes(self)

    async def authorization(self, asked: Asked) -> str | None:
        """A field, or the header that our other faces know."""
        if "authorization" in asked.headers or not self._keys:
            return asked.headers.get("authorization")
        key = (await fields_of(asked, files=1)).get("api_key")
        return f"Bearer {key}" if key else None

    def refusal(self, asked: Asked, error: ServerError) -> Response:
        words = WORDS.get(error.reason, "{message}").format(message=renamed(error.message, "q"), **error.metadata)
        return json_response({"error": words}, http_status(error, STATUSES))

    async def translate(self, asked: Asked) -> Response:
        fields = await fields_of(asked)
        q = required(fields, "q")
        texts = _texts(q)
        source, target = str(required(fields, "source")), str(required(fields, "target"))
        text_format = fields.get("format") or TEXT
        if text_format not in (TEXT, HTML):
            raise InvalidField("format", f"{text_format} format is not supported")
        alternatives = _alternatives(fields)
        target_tag = self._named.tag("target", target)
        detected = await self._named.best(texts) if source == AUTO else []
        sources = [one.language for one in detected] or [self._named.tag("source", source)] * len(texts)
        for tag in sources:
            self._named.check_pair(tag, target_tag)
        count = alternatives + 1
        options: Options = {"num_beams": count, "num_return_sequences": count} if alternatives else {}
        found = await self._texts.translate(texts, sources, target_tag, options, Shape(html=text_format == HTML))
        several = isinstance(q, list)
        answer: dict[str, Any] = {"translatedText": _as_asked([one[0] for one in found], several)}
        if detected:
            answer["detectedLanguage"] = _as_asked([_shown(one) for one in detected], several)
        if alternatives:
            answer["alternatives"] = _as_asked([list(one[1:]) for one in found], several)
        return json_response(answer)

    async def detect(self, asked: Asked) -> Response:
        [ranked] = await self._texts.detect(_texts(str(required(await fields_of(asked), "q"))))
        return json_response([_shown(one) for one in ranked or [Detected(UNKNOWN, 0.0)]])

    async def list_languages(self, asked: Asked) -> Response:
        """Those that are targets only have themselves as their only target: some clients look for both codes."""
        listed = [
            {"code": tag, "name": name_of(tag), "targets": sorted({tag, *self._languages.targets_of(tag)})}
            for tag in self._languages.all
        ]
        return json_response(listed)

    async def settings(self, asked: Asked) -> Response:
        [target, *_] = self._languages.targets or [UNKNOWN]
        return json_response(
            {
                "apiKeys": self._keys,
                "charLimit": -1,
                "filesTranslation": True,
                "frontendTimeout": 500,
                "keyRequired": self._keys,
                "language": {
                    "source": {"code": AUTO, "name": "Auto Detect"},
                    "target": {"code": target, "name": name_of(target)},
                },
                "suggestions": False,
                "supportedFilesFormat": list(FORMATS),
            }
        )

    async def spec(self, asked: Asked) -> Response:
        return json_response(self._spec())


def _texts(q: Any) -> Sequence[str]:
    texts = q if isinstance(q, list) else [q]
    if not all(isinstance(text, str) for text in texts):
        raise InvalidField("q", "Invalid request: q parameter is neither a string nor an array of strings")
    return texts


def _alternatives(fields: Fields) -> int:
    value = fields.get("alternatives") or 0
    try:
        alternatives = int(value)
    except (TypeError, ValueError, OverflowError) as error:  # the last: of what JSON calls Infinity, or 1e999
        raise InvalidField("alternatives", "Invalid request: alternatives parameter is not a number") from error
    if not 0 <= alternatives < MOST_BEAMS:
        limit = f"Invalid request: alternatives ({alternatives}) exceeds alternatives limit ({MOST_BEAMS - 1})"
        raise InvalidField("alternatives", limit)
    return alternatives


def _as_asked(values: list[Any], several: bool) -> Any:
    """An array for an array, one for one."""
    return values if several else values[0]


def _shown(detected: Detected) -> dict[str, Any]:
    return {"confidence": round(detected.confidence * 100, 1), "language": detected.language}


async def _no_suggestions(asked: Asked) -> Response:
    return json_response({"error": "Suggestions are disabled on this server."}, 403)
