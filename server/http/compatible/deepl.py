"""DeepL's API (https://developers.deepl.com/api-reference/translate), for texts: version 2, as its clients speak it."""

from collections.abc import Iterator, Sequence
from typing import Any

from starlette.responses import Response

from server.errors import ServerError
from server.http.asked import Asked
from server.http.compatible.languages import name_of
from server.http.compatible.texts import Texts
from server.http.errors import InvalidField, http_status, renamed
from server.http.face import Route
from server.http.fields import Fields, read_fields
from server.http.native import json_response
from server.identity.identity import Scope
from server.text.texts import Shape

SCHEME = "deepl-auth-key"
UNLIMITED = 10**12
"""What it calls the limit of those who have none."""
STATUSES = {
    "NO_CREDENTIALS": 403,
    "INVALID_TOKEN": 403,
    "OVERLOADED": 429,
    "WOULD_BE_LATE": 429,
}
WITHOUT_EFFECT = {
    "auth_key",
    "context",
    "enable_beta_languages",
    "model_type",
    "outline_detection",
    "preserve_formatting",
    "show_billed_characters",
    "tag_handling_version",
}
"""Fields that are taken, and change nothing: there is one model, which sees sentences."""
KNOWN = {"text", "source_lang", "target_lang", "formality", "tag_handling", "split_sentences"} | WITHOUT_EFFECT
HTML = "html"
SPLITS = {"0": False, "1": True, "nonewlines": True}
"""Whether a text is taken apart into sentences. Lines are apart in any case, as they are for DeepL's newer models."""
LENIENT = ("default", "prefer_more", "prefer_less")
"""Wishes for formality that a service without it may leave open."""
BROKEN = "Bad request. Reason: the body is neither JSON nor a form."


class DeepL:
    """Its routes; as a `Dialect`, its keys and errors."""

    def __init__(self, texts: Texts) -> None:
        self._texts, self._languages = texts, texts.languages
        self._characters = 0
        """Of the texts that were translated since the server started."""

    def routes(self) -> Iterator[Route]:
        """Glossaries can be listed: there are none."""
        name = "deepl.TranslationService/Translate"
        yield Route("POST", "/v2/translate", name, [Scope.TRANSLATE], self, self.translate)
        pages = {
            "/v2/languages": self.list_languages,
            "/v2/usage": self.usage,
            "/v2/glossaries": _listing("glossaries"),
            "/v2/glossary-language-pairs": _listing("supported_languages"),
            "/v3/glossaries": _listing("glossaries"),
        }
        for path, page in pages.items():
            yield Route("GET", path, "deepl.Pages/Get", [Scope.MODELS], self, page)

    async def authorization(self, asked: Asked) -> str | None:
        """With the scheme of its own, and with ours."""
        scheme, _, key = asked.headers.get("authorization", "").partition(" ")
        return f"Bearer {key}" if scheme.lower() == SCHEME else asked.headers.get("authorization")

    def refusal(self, asked: Asked, error: ServerError) -> Response:
        return json_response({"message": renamed(error.message, "text")}, http_status(error, STATUSES))

    async def translate(self, asked: Asked) -> Response:
        fields = await read_fields(asked, BROKEN)
        _check(fields)
        texts = _texts(fields)
        target = self._tag(fields, "target_lang")
        if fields.get("source_lang"):
            sources = [self._tag(fields, "source_lang")] * len(texts)
        else:
            sources = await self._detected(texts)
        for source in sources:
            if source != target and target not in self._languages.targets_of(source):
                raise InvalidField("target_lang", f"Value for 'target_lang' not supported from {source.upper()}.")
        html = fields.get("tag_handling") == HTML
        segmented = html or SPLITS[str(fields.get("split_sentences", "1"))]
        found = await self._texts.translate(texts, sources, target, {}, Shape(html, segmented))
        self._characters += sum(map(len, texts))
        translations = [
            {"detected_source_language": source.upper(), "text": one[0], "billed_characters": len(text)}
            for text, source, one in zip(texts, sources, found, strict=True)
        ]
        return json_response({"translations": translations})

    async def list_languages(self, asked: Asked) -> Response:
        kind = (await read_fields(asked, BROKEN)).get("type", "source")
        if kind not in ("source", "target"):
            raise InvalidField("type", "Value for 'type' not supported.")
        if kind == "source":
            return json_response([{"language": tag.upper(), "name": name_of(tag)} for tag in self._languages.sources])
        listed = [
            {"language": tag.upper(), "name": name_of(tag), "supports_formality": False}
            for tag in self._languages.targets
        ]
        return json_response(listed)

    async def usage(self, asked: Asked) -> Response:
        """Of all callers, since the server started."""
        return json_response({"character_count": self._characters, "character_limit": UNLIMITED})

    def _tag(self, fields: Fields, field: str) -> str:
        if not fields.get(field):
            raise InvalidField(field, f"Bad request. Reason: Value for '{field}' not specified.")
        tag = self._languages.find(str(fields[field]))
        if tag is None:
            raise InvalidField(field, f"Value for '{field}' not supported.")
        return tag

    async def _detected(self, texts: Sequence[str]) -> list[str]:
        """Of a text that tells nothing, any."""
        any_one = self._languages.sources[0]
        return [ranked[0].language if ranked else any_one for ranked in await self._texts.detect(texts)]


def _check(fields: Fields) -> None:
    """Raises InvalidField for what would be dropped silently."""
    unknown = sorted(fields.keys() - KNOWN)
    if unknown:
        raise InvalidField(unknown[0], f"Bad request. Reason: Parameter '{unknown[0][:64]}' not supported.")
    if fields.get("tag_handling") and fields["tag_handling"] != HTML:
        raise InvalidField("tag_handling", f"Value for 'tag_handling' not supported: it may be '{HTML}'.")
    if str(fields.get("split_sentences", "1")) not in SPLITS:
        known = "'0', '1' or 'nonewlines'"
        raise InvalidField("split_sentences", f"Value for 'split_sentences' not supported: it may be {known}.")
    if fields.get("formality", LENIENT[0]) not in LENIENT:
        raise InvalidField("formality", "'formality' is not supported for given 'target_lang'.")


def _texts(fields: Fields) -> list[str]:
    value: Any = fields.get("text")
    texts: list[str] = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise InvalidField("text", "Bad request. Reason: Parameter 'text' not specified.")
    return texts


def _listing(name: str) -> Any:
    async def listing(asked: Asked) -> Response:
        return json_response({name: []})

    return listing
