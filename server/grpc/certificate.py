"""When a certificate ends. Python's ssl module tells that only of a peer's, so the few bytes of DER are read here."""

import base64
import re
from collections.abc import Iterator
from datetime import UTC, datetime

PEM = re.compile(r"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----(.+?)-----END", re.DOTALL)
VERSION, UTC_TIME = 0xA0, 0x17
"""Tags: of the version, which old certificates lack, and of times with two digits for the year."""


def first_expiry(pem: str) -> float:
    """When the first certificate of a PEM text to end does so, in seconds since the epoch. It must have one."""
    return min(expiry(base64.b64decode(certificate)) for certificate in PEM.findall(pem))


def expiry(der: bytes) -> float:
    """`notAfter` of an X.509 certificate (RFC 5280, section 4.1), in seconds since the epoch."""
    (_, certificate), *_ = _elements(der)
    (_, signed), *_ = _elements(certificate)
    fields = [element for element in _elements(signed) if element[0] != VERSION]
    _, validity = fields[3]  # after serial number, signature algorithm and issuer
    _, (tag, not_after) = _elements(validity)
    text = not_after.decode("ascii")
    if tag == UTC_TIME:
        text = ("19" if text >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each element of a sequence."""
    start = 0
    while start < len(der):
        tag, length = der[start], der[start + 1]
        start += 2
        if length >= 0x80:  # so many bytes of length follow
            size = length & 0x7F
            length, start = int.from_bytes(der[start : start + size]), start + size
        yield tag, der[start : start + length]
        start += length
