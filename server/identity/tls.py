"""Transport security of the ports of calls: the server's certificate and key, and which certificates callers need."""

import logging
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import grpc

from server.config import ConfigError, Settings
from server.identity.certificate import first_expiry
from server.identity.reloads import Source

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TlsFiles:
    """What the settings name. All are PEM."""

    certificate: Path
    key: Path
    client_ca: Path | None

    @property
    def all(self) -> Sequence[Path]:
        """Those that there are."""
        return [file for file in (self.certificate, self.key, self.client_ca) if file is not None]


class Tls:
    """The files as they were read last. Handshakes take up new ones; connections that are open stay as they are."""

    def __init__(self, files: TlsFiles) -> None:
        """Raises ConfigError."""
        self.files = files
        self.source = Source("tls", files.all, self.load)
        self.source.read()

    def load(self) -> None:
        """Reads the files, on any thread. Raises ConfigError, and then keeps what it had."""
        context = _context(self.files)
        expiry = first_expiry(self.files.certificate)
        pair = self.files.key.read_bytes(), self.files.certificate.read_bytes()
        client_ca = self.files.client_ca.read_bytes() if self.files.client_ca else None
        self._context = context
        self._newest = grpc.ssl_server_certificate_configuration([pair], client_ca)
        self._fresh: grpc.ServerCertificateConfiguration | None = self._newest
        self.expiry = expiry
        """When the first certificate of the chain to end does so, in seconds since the epoch."""

    def credentials(self) -> grpc.ServerCredentials:
        """For a port. gRPC asks at every handshake, on a thread of its own, whether there is something new."""
        mutual = self.files.client_ca is not None
        self._fresh = None
        changed: Any = self._changed  # whose published type knows no None
        return grpc.dynamic_ssl_server_credentials(self._newest, changed, require_client_authentication=mutual)

    @property
    def context(self) -> ssl.SSLContext:
        """The same for a port that is not gRPC's, as it was read last: to be asked for at every handshake.

        A session of one that was read before does not go on with it: its client may have no right to it any more.
        """
        return self._context

    def _changed(self) -> grpc.ServerCertificateConfiguration | None:
        """What was read since gRPC asked before. None: nothing."""
        fresh, self._fresh = self._fresh, None
        return fresh


def open_tls(settings: Settings) -> Tls | None:
    """What the settings ask for. None: plaintext. Raises ConfigError."""
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    return Tls(TlsFiles(settings.tls_certificate, settings.tls_key, settings.tls_client_ca))


def warn_of_exposure(settings: Settings) -> None:
    """Says what others find who reach the ports, where that are more than the programs of this machine."""
    if is_loopback(settings.host):
        return
    open_doors = []
    if settings.tls_certificate is None:
        open_doors.append("calls are not encrypted")
    if settings.callers is None and settings.jwt_keys is None:
        certified = settings.tls_client_ca is not None
        open_doors.append(
            "any certificate of tls_client_ca may call" if certified else "everybody may call who reaches the port"
        )
    told = "; ".join([*open_doors, "metrics are plain HTTP for everybody"])
    level = logging.WARNING if open_doors else logging.INFO
    log.log(level, "listening on %s, beyond this machine: %s; see docs/deploy.md", settings.host, told)


def is_loopback(host: str) -> bool:
    """Whether an address, or a name, is this machine's own and nobody else's."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _context(files: TlsFiles) -> ssl.SSLContext:
    """Raises ConfigError for files that gRPC would take, only to fail every handshake."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(files.certificate, files.key, password="")  # else it would ask on the terminal
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(
            _flaw(files) or f"tls_certificate {files.certificate} and tls_key {files.key} cannot be used: {error}"
        ) from error
    if files.client_ca is not None:
        try:
            context.load_verify_locations(files.client_ca)
        except OSError as error:
            raise ConfigError(f"tls_client_ca {files.client_ca} cannot be used: {error.strerror}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _flaw(files: TlsFiles) -> str | None:
    """What is wrong with which file of certificate and key, where OpenSSL tells neither. None: it tells."""
    named = {"tls_certificate": (files.certificate, "CERTIFICATE"), "tls_key": (files.key, "PRIVATE KEY")}
    for setting, (file, kind) in named.items():
        refused = f"{setting} {file} cannot be used: "
        try:
            text = file.read_bytes()
        except OSError as error:
            return f"{refused}{error.strerror}"
        if f"{kind}-----".encode() not in text:
            return f"{refused}it has no {kind.lower()} in PEM, which begins -----BEGIN {kind}-----"
        if setting == "tls_key" and b"ENCRYPTED" in text:
            return f"{refused}it needs a passphrase; write it without one: openssl pkey -in {file} -out FILE"
    return None
