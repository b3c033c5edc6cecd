"""Who made a package: an Ed25519 signature (RFC 8032) of manifest.json, which has the SHA-256 of everything else.

It stands beside the manifest, as manifest.json.sig: 64 bytes, in base64. Keys are PEM files, as OpenSSL writes them:

    openssl genpkey -algorithm ed25519 -out private.pem
    openssl pkey -in private.pem -pubout -out public.pem

cryptography is imported where it is used: a server that asks for no signature starts without it.
"""

import base64
import hashlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from models.package.folder import MANIFEST, SIGNATURE, Package

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

MOST_BYTES = 4096
"""Of a key or a signature. They have a hundred."""


class SealError(Exception):
    """A key that is none, or a package that was not signed with it. The message says what to do."""


def private_key(file: Path) -> "Ed25519PrivateKey":
    """The key that packages are signed with. Raises SealError."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(_short(file), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SealError(f"{file} is no private key without a password ({error}); {_make('genpkey')}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise SealError(f"{file} is no Ed25519 key; {_make('genpkey')}")
    return key


def public_key(file: Path) -> "Ed25519PublicKey":
    """The key that packages are checked with. Raises SealError."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(_kept(file))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise SealError(f"{file} is no public key ({error}); {_make('pkey -pubout')}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise SealError(f"{file} is no Ed25519 key; {_make('pkey -pubout')}")
    return key


def sign(manifest: Path, key: "Ed25519PrivateKey") -> None:
    """Writes the signature of a manifest beside it."""
    signature = base64.b64encode(key.sign(manifest.read_bytes()))
    manifest.with_name(SIGNATURE).write_bytes(signature + b"\n")


def check_seal(package: Package, key: "Ed25519PublicKey") -> None:
    """Raises SealError unless the key's owner has signed the package."""
    from cryptography.exceptions import InvalidSignature

    file = package.folder / SIGNATURE
    if not file.exists():
        raise SealError(
            f"{package.folder} is not signed: there is no {SIGNATURE}. Sign with python -m export --sign KEY"
        )
    manifest = (package.folder / MANIFEST).read_bytes()
    try:
        if hashlib.sha256(manifest).hexdigest() != package.sha256:
            raise InvalidSignature
        key.verify(base64.b64decode(_kept(file)), manifest)
    except (InvalidSignature, ValueError) as error:
        raise SealError(
            f"{file} is no signature of this package by this key: take the package from its maker"
        ) from error


def _kept(file: Path) -> bytes:
    """Of a file that is read again with each new version of a package."""
    with suppress(OSError):  # of which reading it tells
        if file.is_fifo():  # nobody may ever write to it
            raise SealError(f"{file} is a pipe; put a file in its place")
    return _short(file)


def _short(file: Path) -> bytes:
    try:
        with file.open("rb") as content:
            data = content.read(MOST_BYTES + 1)
    except OSError as error:
        raise SealError(f"{file} cannot be read ({error.strerror})") from error
    if len(data) > MOST_BYTES:
        raise SealError(f"{file} has more than {MOST_BYTES} bytes: it is neither a key nor a signature")
    return data


def _make(what: str) -> str:
    return f"see openssl {what} in docs/export.md"
