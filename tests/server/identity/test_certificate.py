"""server.identity.certificate, against certificates of every kind of key and date."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from server.config import ConfigError
from server.identity.certificate import first_expiry

KEYS: dict[str, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey] = {
    "rsa": rsa.generate_private_key(65537, 2048),
    "ec": ec.generate_private_key(ec.SECP256R1()),
    "ed25519": ed25519.Ed25519PrivateKey.generate(),
}


def certificate(end: datetime, kind: str = "ec", names: Sequence[str] = ("a.example",)) -> str:
    key, subject = KEYS[kind], x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a.example")])
    built = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(end - timedelta(days=90))
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName(list(map(x509.DNSName, names))), critical=False)
        .sign(key, None if kind == "ed25519" else SHA256())
    )
    return built.public_bytes(Encoding.PEM).decode()


def ends(folder: Path, pem: str) -> float:
    """When the chain in a file of this content does."""
    file = folder / "chain.pem"
    file.write_text(pem)
    return first_expiry(file)


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("year", [1999, 2026, 2049, 2050, 2120])
def test_it_ends_when_it_was_made_to(kind: str, year: int, tmp_path: Path) -> None:
    end = datetime(year, 3, 14, 15, 9, 26, tzinfo=UTC)
    assert ends(tmp_path, certificate(end, kind)) == end.timestamp()


def test_one_of_several_kilobytes_is_read(tmp_path: Path) -> None:
    end = datetime(2030, 1, 1, tzinfo=UTC)
    names = [f"host-{number}.example" for number in range(5000)]
    assert ends(tmp_path, certificate(end, names=names)) == end.timestamp()


def test_of_a_chain_the_first_to_end_counts(tmp_path: Path) -> None:
    dates = [datetime(year, 1, 1, tzinfo=UTC) for year in (2031, 2029, 2035)]
    chain = "bag attributes\n".join(map(certificate, dates))
    assert ends(tmp_path, chain) == dates[1].timestamp()


def test_what_openssl_calls_trusted_is_refused_with_the_way_out(tmp_path: Path) -> None:
    pem = certificate(datetime(2030, 1, 1, tzinfo=UTC)).replace("CERTIFICATE", "TRUSTED CERTIFICATE")
    with pytest.raises(ConfigError, match=r"tls_certificate .*chain\.pem .*openssl x509 -in .*chain\.pem -out"):
        ends(tmp_path, pem)


def test_those_of_trustme(tmp_path: Path) -> None:
    end = datetime(2030, 1, 1, tzinfo=UTC)
    issued = trustme.CA().issue_cert("localhost", not_after=end)
    assert ends(tmp_path, issued.cert_chain_pems[0].bytes().decode()) == end.timestamp()
