"""server.identity.tls: who may connect, as whom, and certificates that are renewed while the server runs."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from dragoman import AsyncClient, DragomanError, TlsOptions
from server.config import ConfigError, Settings
from server.identity.callers import Callers, CallersFile
from server.identity.door import Door, ListedDoor, OpenDoor
from server.identity.tls import Tls, TlsFiles, is_loopback, warn_of_exposure
from tests.serving import serving


@dataclass
class Files:
    """Those of a server, and how they are renewed."""

    folder: Path
    authority: trustme.CA = field(default_factory=trustme.CA)

    def __post_init__(self) -> None:
        self.named = {name: self.folder / f"{name}.pem" for name in ("tls_certificate", "tls_key", "tls_client_ca")}
        self.renew(self.authority)

    def renew(self, authority: trustme.CA, expiry: datetime | None = None) -> None:
        self.authority = authority
        own = authority.issue_cert("127.0.0.1", not_after=expiry)
        own.private_key_pem.write_to_path(self.named["tls_key"])
        self.named["tls_certificate"].write_bytes(b"".join(pem.bytes() for pem in own.cert_chain_pems))
        authority.cert_pem.write_to_path(self.named["tls_client_ca"])

    def tls(self, mutual: bool = True) -> Tls:
        files = self.named
        return Tls(TlsFiles(files["tls_certificate"], files["tls_key"], files["tls_client_ca"] if mutual else None))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def client_of(trusted: trustme.CA, issued: trustme.LeafCert | None = None) -> TlsOptions:
    """Of a client with this certificate."""
    roots = trusted.cert_pem.bytes()
    if issued is None:
        return TlsOptions(roots)
    chain = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
    return TlsOptions(roots, chain, issued.private_key_pem.bytes())


@dataclass
class Reached:
    """A server, called on a new connection each time."""

    port: int

    async def call(self, tls: TlsOptions) -> str:
        """The reason of the refusal, or its code; else the answer."""
        async with AsyncClient(f"127.0.0.1:{self.port}", tls=tls, wait_for_ready=False) as client:
            try:
                return (await client.translate("A cat.", target_language="pt", timeout_s=30)).text
            except DragomanError as error:
                return error.reason or error.code.name


@asynccontextmanager
async def reached(tls: Tls, door: Door) -> AsyncIterator[Reached]:
    async with serving(door=door, credentials=tls.credentials(), log_requests=True) as server:
        yield Reached(server.port)


def listed(*names: str) -> ListedDoor:
    callers = {name: {"certificate": True} for name in names}
    return ListedDoor(Callers(CallersFile.model_validate({"callers": callers})))


async def test_those_whom_the_list_names_may_call_and_are_named_in_the_log(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    mine = files.authority.issue_cert("other.example", "reports@example.org")
    anybodys = files.authority.issue_cert("anybody@example.org")
    strangers = trustme.CA().issue_cert("reports@example.org")
    async with reached(files.tls(), listed("reports@example.org")) as server:
        assert await server.call(client_of(files.authority, mine)) == "A cat."
        assert await server.call(client_of(files.authority, anybodys)) == "CALLER_NOT_LISTED"
        assert await server.call(client_of(files.authority, strangers)) == "UNAVAILABLE"
        assert await server.call(client_of(files.authority)) == "UNAVAILABLE"
    lines = [vars(record)["fields"] for record in caplog.records if record.getMessage() == "call answered"]
    assert [(line["caller"], line["code"]) for line in lines] == [
        ("reports@example.org", "OK"),
        ("ipv4:127.0.0.1", "PERMISSION_DENIED"),
    ]


async def test_without_a_list_a_certificate_says_who_calls(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with reached(files.tls(), OpenDoor()) as server:
        any_of_them = client_of(files.authority, files.authority.issue_cert("anybody@example.org"))
        assert await server.call(any_of_them) == "A cat."
    [line] = [vars(record)["fields"] for record in caplog.records if record.getMessage() == "call answered"]
    assert line["caller"] == "anybody@example.org"


async def test_a_spiffe_id_is_a_name(files: Files) -> None:
    uri = "spiffe://example.org/ns/prod/sa/reports"
    async with reached(files.tls(), listed(uri)) as server:
        assert await server.call(_with_uri(files.authority, uri)) == "A cat."
        assert await server.call(_with_uri(files.authority, uri + "-2")) == "CALLER_NOT_LISTED"


async def test_renewed_files_are_taken_up_without_a_restart(files: Files) -> None:
    old, new = files.authority, trustme.CA()
    tls = files.tls()
    async with reached(tls, listed("a.example")) as server:
        before = client_of(old, old.issue_cert("a.example"))
        after = client_of(new, new.issue_cert("a.example"))
        assert [await server.call(tls) for tls in (before, after)] == ["A cat.", "UNAVAILABLE"]
        expiry = datetime(2035, 1, 1, tzinfo=UTC)
        files.renew(new, expiry)
        tls.load()
        assert [await server.call(tls) for tls in (before, after)] == ["UNAVAILABLE", "A cat."]
        assert tls.expiry == expiry.timestamp()


@pytest.mark.parametrize("broken", ["tls_certificate", "tls_key", "tls_client_ca"])
@pytest.mark.parametrize("how", ["missing", "not PEM"])
async def test_a_file_that_cannot_be_used_is_named_and_the_old_ones_stay(files: Files, broken: str, how: str) -> None:
    tls, known = files.tls(), client_of(files.authority, files.authority.issue_cert("a.example"))
    async with reached(tls, listed("a.example")) as server:
        if how == "missing":
            files.named[broken].unlink()
        else:
            files.named[broken].write_text("hello")
        with pytest.raises(ConfigError, match=f"{broken} .*{broken}.pem.* cannot be used"):
            tls.load()
        assert await server.call(known) == "A cat."


def test_a_key_of_another_certificate_is_refused(files: Files) -> None:
    files.authority.issue_cert("127.0.0.1").private_key_pem.write_to_path(files.named["tls_key"])
    with pytest.raises(ConfigError, match=r"cannot be used: .*mismatch"):
        files.tls()


def test_a_key_that_asks_for_a_password_is_refused(files: Files) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption

    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    files.named["tls_key"].write_bytes(pem)
    with pytest.raises(ConfigError, match=r"^tls_key .*tls_key.pem cannot be used: it needs a passphrase; .* openssl "):
        files.tls()


@pytest.mark.parametrize(("setting", "kind"), [("tls_certificate", "certificate"), ("tls_key", "private key")])
def test_a_file_in_place_of_the_other_is_told(files: Files, setting: str, kind: str) -> None:
    other = "tls_key" if setting == "tls_certificate" else "tls_certificate"
    files.named[setting].write_bytes(files.named[other].read_bytes())
    with pytest.raises(ConfigError, match=f"^{setting} .*{setting}.pem cannot be used: it has no {kind} in PEM"):
        files.tls()


@pytest.mark.parametrize("setting", ["tls_certificate", "tls_key"])
def test_of_certificate_and_key_the_one_that_is_not_there_is_told(files: Files, setting: str) -> None:
    files.named[setting].unlink()
    with pytest.raises(ConfigError, match=f"^{setting} .*{setting}.pem cannot be used: No such file or directory$"):
        files.tls()


async def test_tls_that_asks_for_no_certificate(files: Files) -> None:
    async with reached(files.tls(mutual=False), OpenDoor()) as server:
        assert await server.call(client_of(files.authority)) == "A cat."
        assert await server.call(client_of(trustme.CA())) == "UNAVAILABLE"


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],
)
def test_loopback(host: str, own: bool) -> None:
    assert is_loopback(host) == own


@pytest.mark.parametrize(
    ("values", "level", "told"),
    [
        ({"host": "127.0.0.1"}, None, []),
        ({}, "WARNING", ["not encrypted", "everybody may call"]),
        ({"callers": "c.toml"}, "WARNING", ["not encrypted"]),
        ({"tls_certificate": "c", "tls_key": "k"}, "WARNING", ["everybody may call"]),
        (
            {"tls_certificate": "c", "tls_key": "k", "tls_client_ca": "a"},
            "WARNING",
            ["any certificate of tls_client_ca"],
        ),
        ({"tls_certificate": "c", "tls_key": "k", "callers": "c.toml"}, "INFO", ["metrics are plain HTTP"]),
    ],
)
def test_what_is_open_beyond_this_machine_is_said(
    values: dict[str, str], level: str | None, told: Sequence[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    warn_of_exposure(Settings(**{"host": "0.0.0.0", **values}))  # type: ignore[arg-type]
    assert [record.levelname for record in caplog.records] == ([level] if level else [])
    phrases = ("not encrypted", "everybody may call", "any certificate of tls_client_ca")
    assert [phrase for phrase in phrases if phrase in caplog.text] == [phrase for phrase in told if phrase in phrases]


def _with_uri(authority: trustme.CA, uri: str) -> TlsOptions:
    """A client's certificate with a URI, which trustme does not issue."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer_key = authority._private_key  # it has no other way out
    issuer = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    certificate = (
        x509.CertificateBuilder(issuer.subject, x509.Name([]), key.public_key(), x509.random_serial_number())
        .not_valid_before(issuer.not_valid_before_utc)
        .not_valid_after(issuer.not_valid_after_utc)
        .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)]), critical=True)
        .sign(issuer_key, SHA256())
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return TlsOptions(authority.cert_pem.bytes(), certificate.public_bytes(Encoding.PEM), pem)
