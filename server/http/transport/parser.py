"""httptools' parser of requests, for a server that speaks nothing but HTTP/1.1."""

from typing import Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

UPGRADE = b"upgrade"


class Heard(Protocol):
    """What hears of a request, by the callbacks of httptools, and keeps its head."""

    url: bytes
    headers: list[tuple[bytes, bytes]]


class Parser:
    """Answers requests to go on in another protocol as if they did not ask (RFC 9110, section 7.8).

    httptools takes their content for the other protocol's, and what follows too. Java's own client asks so for HTTP/2
    in whatever it sends first.
    """

    def __init__(self, heard: Heard) -> None:
        self._heard = heard
        self._parser = self._new()

    def feed_data(self, data: bytes) -> None:
        """Tells what there is in it. A head that asks for another protocol is told twice, and once without that.

        Raises HttpParserError.
        """
        while True:
            try:
                self._parser.feed_data(data)
            except HttpParserUpgrade as upgrade:
                data = self._head_without_upgrade() + data[upgrade.args[0] :]
                self._parser = self._new()
            else:
                return

    def should_upgrade(self) -> bool:
        """The head that is told will be told again."""
        return self._parser.should_upgrade()

    def should_keep_alive(self) -> bool:
        return self._parser.should_keep_alive()

    def get_http_version(self) -> str:
        return self._parser.get_http_version()

    def get_method(self) -> bytes:
        return self._parser.get_method()

    def _new(self) -> HttpRequestParser:
        parser = HttpRequestParser(self._heard)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's: those of a pipeline are answered
        return parser

    def _head_without_upgrade(self) -> bytes:
        method, version = self._parser.get_method(), self._parser.get_http_version().encode()
        if method == b"CONNECT":
            raise HttpParserError("a tunnel has no content that is ours")
        fields = [name + b": " + value for name, value in self._heard.headers if name != UPGRADE]
        return b"\r\n".join([b"%b %b HTTP/%b" % (method, self._heard.url, version), *fields, b"", b""])
