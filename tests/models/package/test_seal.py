"""models.package.seal: a package is of whoever signed it, or is not served. The signatures are also OpenSSL's."""

import base64
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from models.package.folder import MANIFEST, SIGNATURE, Package
from models.package.seal import SealError, check_seal, private_key, public_key, sign
from tests.server_process import server_process


class Keys:
    """A pair, made by OpenSSL."""

    def __init__(self, folder: Path, name: str, algorithm: str = "ed25519") -> None:
        self.private, self.public = folder / f"{name}.pem", folder / f"{name}.pub.pem"
        openssl("genpkey", "-algorithm", algorithm, "-out", self.private)
        openssl("pkey", "-in", self.private, "-pubout", "-out", self.public)


def openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path, "maker")


@pytest.fixture
def signed(tiny_package: Package, tmp_path: Path, keys: Keys) -> Package:
    folder = tmp_path / "package"
    shutil.copytree(tiny_package.folder, folder)
    sign(folder / MANIFEST, private_key(keys.private))
    return Package.open(folder)


def test_a_signed_package_is_its_makers(signed: Package, keys: Keys) -> None:
    check_seal(signed, public_key(keys.public))


def test_openssl_reads_the_signature(signed: Package, keys: Keys, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.write_bytes(base64.b64decode((signed.folder / SIGNATURE).read_bytes()))
    verify = ("-verify", "-pubin", "-inkey", keys.public, "-rawin", "-in", signed.folder / MANIFEST, "-sigfile", raw)
    openssl("pkeyutl", *verify)


def test_openssl_signs_as_export_does(signed: Package, keys: Keys, tmp_path: Path) -> None:
    """As docs/export.md says, where a package is there already."""
    (signed.folder / SIGNATURE).unlink()
    openssl(
        "pkeyutl", "-sign", "-rawin", "-inkey", keys.private, "-in", signed.folder / MANIFEST, "-out", tmp_path / "raw"
    )
    openssl("base64", "-in", tmp_path / "raw", "-out", signed.folder / SIGNATURE)
    check_seal(signed, public_key(keys.public))


def test_it_is_nobody_elses(signed: Package, tmp_path: Path) -> None:
    with pytest.raises(SealError, match="is no signature of this package by this key"):
        check_seal(signed, public_key(Keys(tmp_path, "other").public))


def test_another_manifest_is_not_signed(signed: Package, keys: Keys) -> None:
    manifest = signed.folder / MANIFEST
    manifest.write_bytes(manifest.read_bytes() + b" ")
    for package in (signed, Package.open(signed.folder)):
        with pytest.raises(SealError, match="is no signature of this package by this key"):
            check_seal(package, public_key(keys.public))


@pytest.mark.parametrize("content", [b"", b"no base64!", b"QUJD", b"A" * 10_000])
def test_what_is_no_signature_is_refused(signed: Package, keys: Keys, content: bytes) -> None:
    (signed.folder / SIGNATURE).write_bytes(content)
    with pytest.raises(SealError):
        check_seal(signed, public_key(keys.public))


def test_a_package_without_a_signature_says_how_to_sign_it(tiny_package: Package, keys: Keys) -> None:
    with pytest.raises(SealError, match=r"there is no manifest\.json\.sig\. Sign with python -m export --sign KEY"):
        check_seal(tiny_package, public_key(keys.public))


def test_what_is_no_such_key_is_refused(tmp_path: Path) -> None:
    other = Keys(tmp_path, "x25519", "x25519")
    junk = tmp_path / "junk.pem"
    junk.write_bytes(b"-----BEGIN")
    too_long = tmp_path / ("a" * 300)
    for file in (other.private, junk, tmp_path / "none", too_long):
        with pytest.raises(SealError, match=str(file)):
            private_key(file)
    for file in (other.public, other.private, junk, tmp_path / "none", too_long):
        with pytest.raises(SealError, match=str(file)):
            public_key(file)


def test_a_pipe_is_neither_a_key_nor_a_signature(signed: Package, keys: Keys, tmp_path: Path) -> None:
    """It is read again with each new version, and nobody may ever write to it."""
    os.mkfifo(tmp_path / "pipe.pem")
    with pytest.raises(SealError, match=r"pipe\.pem is a pipe; put a file in its place"):
        public_key(tmp_path / "pipe.pem")
    (signed.folder / SIGNATURE).unlink()
    os.mkfifo(signed.folder / SIGNATURE)
    with pytest.raises(SealError, match=rf"{SIGNATURE} is a pipe; put a file in its place"):
        check_seal(signed, public_key(keys.public))


def test_a_server_serves_what_is_signed(signed: Package, keys: Keys) -> None:
    with server_process(signed.folder, "--require-signed", keys.public) as server:
        assert server.process.poll() is None
