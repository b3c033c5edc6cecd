"""server.identity.callers: what the file may say, and how it is refused."""

import logging
from pathlib import Path

import pytest

from server.admission.quotas import Quota
from server.config import ConfigError, load_settings
from server.identity.callers import MAX_BYTES, read_callers
from server.identity.identity import Identity, Scope
from server.identity.opening import open_door
from server.identity.tokens import token_hash


def write(folder: Path, text: str) -> Path:
    file = folder / "callers.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_names_scopes_and_quotas_stand_beside_the_hash(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        f"""
        [callers.reports]
        tokens = ["{token_hash("old")}", "{token_hash("new")}"]
        scopes = ["translate"]
        quota = {{texts_per_s = 100, cost_per_s = 0.5, calls = 4}}

        [callers."billing.example"]
        certificate = true
        """,
    )
    callers = read_callers(file)
    assert callers.names == ("reports", "billing.example")
    reports = Identity("reports", frozenset({Scope.TRANSLATE}), Quota(texts_per_s=100.0, cost_per_s=0.5, calls=4))
    assert callers.by_token("old") == callers.by_token("new") == reports
    assert callers.by_token("sha256:x") is callers.by_token(token_hash("old")) is None
    billing = Identity("billing.example", frozenset({Scope.TRANSLATE, Scope.ENCODE, Scope.MODELS}))
    assert callers.by_certificate(("other.example", "billing.example")) == billing
    assert callers.by_certificate(("reports",)) is callers.by_certificate(()) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[callers.a]\n", "a has neither tokens nor certificate = true"),
        ('[callers.a]\ntokens = ["secret-token"]', r"callers\.a\.tokens\.0: String should match"),
        ("[callers.a]\ncertificate = true\nscopes = []", r"callers\.a\.scopes: .*at least 1"),
        ('[callers.a]\ncertificate = true\nscopes = ["root"]', r"callers\.a\.scopes\.0"),
        ('[callers."a b"]\ncertificate = true', r"callers\.a b"),
        ("[callers.a]\ncertificate = true\nquota = {texts = 3}", r"quota\.texts: Extra"),
        ("[callers.a]\ncertificate = true\nquota = {calls = 0}", r"quota\.calls: .*greater than or equal to 1"),
        ("[caller.a]\ncertificate = true", "caller: Extra"),
        ("[callers.other]\ncertificate = true", "choose another name"),
        ("[callers", "Expected"),
        (f"a = {'[' * 5_000}", "maximum recursion depth"),
        ("#" * (MAX_BYTES + 1), f"more than {MAX_BYTES} bytes"),
        (f'[callers.a]\ntokens = ["{token_hash("x")}"]\n[callers.b]\ntokens = ["{token_hash("x")}"]', "is there twice"),
    ],
)
def test_what_cannot_be_used_is_refused_and_no_token_repeated(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        read_callers(write(tmp_path, text))
    assert "secret-token" not in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_may_begin_with_the_mark_of_some_editors(tmp_path: Path) -> None:
    assert read_callers(write(tmp_path, "\ufeff[callers.a]\ncertificate = true")).names == ("a",)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"callers .*gone\.toml: .*No such file"):
        read_callers(tmp_path / "gone.toml")


def test_a_file_that_lets_nobody_in_is_warned_of_at_every_reading(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(tmp_path, "")
    _, sources = open_door(load_settings(["--callers", str(file)]))
    write(tmp_path, f'[callers.a]\ntokens = ["{token_hash("x")}"]')
    sources[0].read()
    write(tmp_path, "# nobody any more")
    sources[0].read()
    told = f"callers {file} lists nobody: every call is refused; python -m server.identity makes an entry"
    assert [(one.levelno, one.message) for one in caplog.records] == [(logging.WARNING, told)] * 2


def test_tokens_of_an_issuer_are_still_let_in_by_a_file_that_lists_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    issuer = ["--jwt-keys", str(tmp_path / "keys"), "--jwt-issuer", "https://issuer.example", "--jwt-audience", "us"]
    with pytest.raises(ConfigError, match="keys"):
        open_door(load_settings(["--callers", str(write(tmp_path, "")), *issuer]))
    assert "lists nobody: only tokens of jwt_issuer are let in" in caplog.text


def test_who_needs_a_certificate_that_nobody_asks_for_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hashed = token_hash("x")
    file = write(tmp_path, f'[callers.a]\ncertificate = true\n[callers.b]\ncertificate = true\ntokens = ["{hashed}"]')
    tls = ["--tls-certificate", "a.pem", "--tls-key", "a.pem", "--tls-client-ca", "a.pem"]
    open_door(load_settings(["--callers", str(file), *tls]))
    assert not caplog.records
    open_door(load_settings(["--callers", str(file)]))
    told = f"callers {file} lets a in by certificate only, and without tls_client_ca nobody is asked for one"
    assert [one.message for one in caplog.records] == [told]
