"""server.config: where settings come from, and what they may be."""

import os
import re
from pathlib import Path

import pytest

from engine.devices.machine import usable_cores
from engine.devices.session import CPU
from engine.loading.load import worker_count
from models.package.declared.numbers import Precisions
from server.config import ConfigError, Settings, load_settings
from tests.checkpoints import ROOT


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DRAGOMAN_")]:
        monkeypatch.delenv(name)


def write(folder: Path, text: str) -> str:
    file = folder / "server.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_defaults_bind_to_loopback_and_use_every_core() -> None:
    settings = load_settings([])
    assert (settings.host, settings.port, settings.metrics_port) == ("127.0.0.1", 8500, 9500)
    assert settings.workers is None and worker_count(Precisions.of_all("fp32"), CPU, None) == usable_cores() >= 1


def test_the_device_is_the_cpu_unless_one_asks() -> None:
    assert (load_settings([]).device, load_settings([]).cuda_graphs) == ("cpu", True)
    settings = load_settings(["--device", "auto", "--device-id", "2", "--no-cuda-graphs"])
    assert (settings.device, settings.device_id, settings.cuda_graphs) == ("auto", 2, False)


def test_flags_go_before_environment_before_file_before_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, 'port = 1\nmetrics_port = 1\nworkers = 1\nlog_level = "debug"')
    monkeypatch.setenv("DRAGOMAN_PORT", "2")
    monkeypatch.setenv("DRAGOMAN_METRICS_PORT", "2")
    settings = load_settings(["--config", file, "--port", "3"])
    assert (settings.port, settings.metrics_port, settings.workers, settings.max_waiting) == (3, 2, 1, 1024)
    assert settings.log_level == "debug"


def test_the_environment_may_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_CONFIG", write(tmp_path, "max_rows = 7"))
    assert load_settings([]).max_rows == 7


@pytest.mark.parametrize("name", ["callers", "config", "package", "tls_certificate"])
def test_what_is_empty_is_not_the_current_folder(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"DRAGOMAN_{name.upper()}", "")
    with pytest.raises(ConfigError, match=f"^DRAGOMAN_{name.upper()} is .*: a value is empty; leave it out"):
        load_settings([])


@pytest.mark.parametrize("line", ["callers = 'a0b'", "http_hosts = ['a', 'a0b']", "tls_certificate = 'a0b'"])
def test_nothing_is_named_by_a_nul(line: str, tmp_path: Path) -> None:
    """Which only a file can have: flags and variables end at one."""
    text = line.replace("'", '"').replace("0", "\\u0000")
    with pytest.raises(ConfigError, match=r"^(callers|http_hosts|tls_certificate) is .*: a value has a NUL"):
        load_settings(["--config", write(tmp_path, text)])


@pytest.mark.parametrize(
    "line", ["http_hosts = ['a.example,b.example']", "http_cors = ['https://a.example,https://b.example']"]
)
def test_an_entry_of_a_list_in_a_file_is_no_list(line: str, tmp_path: Path) -> None:
    """It was taken for one name, which nobody has."""
    with pytest.raises(ConfigError, match=r"^http_(hosts|cors)\.0 is .*: expected (a name|\* or an origin)"):
        load_settings(["--config", write(tmp_path, line.replace("'", '"'))])


@pytest.mark.parametrize("line", ["max_rows = true", "shadow_share = true", "port = false", "host = true"])
def test_truth_is_no_number(line: str, tmp_path: Path) -> None:
    name, _, value = line.partition(" = ")
    with pytest.raises(ConfigError, match=f"^{name} is {value.title()}: expected another value than true or false"):
        load_settings(["--config", write(tmp_path, line)])


def test_variables_of_others_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    compose = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    for number, name in enumerate(["DRAGOMAN_TOKEN", *re.findall(r"\$\{(DRAGOMAN_\w+)", compose)]):
        monkeypatch.setenv(name, str(number))
    assert load_settings([]).port == 1


def test_lists_may_have_spaces_and_nothing_empty() -> None:
    assert load_settings(["--package", "a, b"]).package == (Path("a"), Path("b"))
    with pytest.raises(ConfigError, match=r"^--package is .*: a value is empty; leave it out"):
        load_settings(["--package", "a,"])


def test_settings_cannot_be_changed() -> None:
    settings = load_settings([])
    with pytest.raises(ValueError, match="frozen"):
        settings.port = 1


def test_help_documents_every_setting_and_its_variable(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        load_settings(["--help"])
    assert caught.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for name, field in Settings.model_fields.items():
        assert f"--{name.replace('_', '-')} " in text
        assert f"[env: DRAGOMAN_{name.upper()}]" in text
        assert field.description
        assert field.description.split("`")[0][:40] in text


def test_help_calls_values_what_people_call_them(capsys: pytest.CaptureFixture[str]) -> None:
    """Not by their types in Python."""
    with pytest.raises(SystemExit):
        load_settings(["--help"])
    usage, _, options = " ".join(capsys.readouterr().out.split()).partition(" options: ")
    values = dict(re.findall(r"\[--([a-z-]+) ([^\]|]+(?:\|URL)?)\]", usage))
    taking = {name for name, field in Settings.model_fields.items() if field.annotation is not bool}
    assert {name.replace("-", "_") for name in values} == taking
    words = {"FILE", "FOLDER", "FILE|URL", "URL", "NAME", "ADDRESS", "ORIGIN", "PORT", "SHARE", "RATE", "SECONDS", "MB"}
    assert {told for told in values.values() if told[0] != "{"} == words | {"BYTES", "NUMBER", "N"}
    assert (values["package"], values["port"], values["grace-period-s"]) == ("FOLDER", "PORT", "SECONDS")
    assert (values["device"], values["workers"]) == ("{cpu,cuda,auto}", "N")
    for told in ("(default: models/zoo/en-pt)", "(default: 0.9)", "(default: 30)", "(default: true)"):
        assert told in options
    assert "default: None" not in options and "default: ()" not in options


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prot", "1"], r"^--prot is no flag; did you mean --port\?$"),
        (["--packge=artifacts/en-pt"], r"^--packge is no flag; did you mean --package\?$"),
        (["--pack", "artifacts/en-pt"], "^--pack is no flag"),
        (["--moel", "x"], "^--moel is no flag$"),
        (["--config", "no/such"], "^no/such: No such file or directory$"),
        (["en-pt"], "^en-pt is no flag; packages are named before all flags, and"),
        (["--port"], "^--port: expected one argument$"),
        (["--port", "abc"], "^--port is 'abc': Input should be a valid integer$"),
    ],
)
def test_a_slip_is_told_on_one_line(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_settings(arguments)


@pytest.mark.parametrize(
    ("arguments", "packages"),
    [
        (["--package", "a", "--package", "b"], ("a", "b")),
        (["--package=b", "--package=a"], ("b", "a")),
        (["--package", "a,b", "--package", "c d"], ("a", "b", "c d")),
        ([], ("e", "f")),
    ],
)
def test_packages_add_up_and_keep_their_order(
    arguments: list[str], packages: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_PACKAGE", "e,f")
    assert load_settings(arguments).package == tuple(map(Path, packages))


@pytest.mark.parametrize(("text", "packages"), [("'a'", ["a"]), ("['a', 'b,c']", ["a", "b,c"])])
def test_a_file_has_one_package_or_a_list(tmp_path: Path, text: str, packages: list[str]) -> None:
    settings = load_settings(["--config", write(tmp_path, f"package = {text}")])
    assert settings.package == tuple(map(Path, packages))


def test_a_flag_may_be_overruled() -> None:
    assert load_settings(["--port", "1", "--port", "2"]).port == 2


def test_an_unknown_variable_is_refused_with_the_likely_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_PROT", "1")
    with pytest.raises(ConfigError, match="DRAGOMAN_PROT is no setting; did you mean DRAGOMAN_PORT"):
        load_settings([])


def test_the_clients_variable_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_TARGET", "127.0.0.1:1")
    assert load_settings([]).port == 8500


def test_an_unknown_key_of_the_file_is_refused_with_the_likely_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"server\.toml: worker is no setting; did you mean workers"):
        load_settings(["--config", write(tmp_path, "worker = 1")])
    with pytest.raises(ConfigError, match=r"server\.toml: MAX_ROWS is no setting; did you mean max_rows"):
        load_settings(["--config", write(tmp_path, "MAX_ROWS = 1")])


def test_a_file_may_begin_with_the_mark_of_some_editors(tmp_path: Path) -> None:
    assert load_settings(["--config", write(tmp_path, "\ufeffmax_rows = 3")]).max_rows == 3


def test_a_file_that_nests_too_deep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"server\.toml: maximum recursion depth"):
        load_settings(["--config", write(tmp_path, f"package = {'[' * 100_000}")])


@pytest.mark.parametrize(
    ("text", "message"), [("port = ", "Invalid value"), ("config = 'other.toml'", "cannot name another one")]
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"server\.toml: .*{message}"):
        load_settings(["--config", write(tmp_path, text)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("package = 5", "package is 5: expected a text, or a list of texts"),
        ("package = []", r"package is \[\]: expected at least one"),
        ("package = [5]", "package.0 is 5: expected a text;"),
        ("callers = 3", "callers is 3: expected a text$"),
        ("host = ['a']", r"host is \['a'\]: expected a text$"),
        ("http_hosts = true", "http_hosts is True: expected another value than true or false"),
    ],
)
def test_a_file_with_a_value_of_another_kind_is_told_which_it_must_be(tmp_path: Path, text: str, message: str) -> None:
    """In words of TOML and not of Python."""
    with pytest.raises(ConfigError, match=message):
        load_settings(["--config", write(tmp_path, text)])


def test_a_file_that_is_no_utf_8_is_refused_with_the_byte(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_bytes("host = '\u00e9'".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"server\.toml: byte 9 is not UTF-8; convert the file to UTF-8 first"):
        load_settings(["--config", str(file)])


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: .*No such file"):
        load_settings(["--config", str(tmp_path / "none.toml")])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "65536"], "--port is '65536': .*65535"),
        (["--port", "http"], "--port is 'http': .*integer"),
        (["--workers", "0"], "--workers is '0': .*1"),
        (["--device", "gpu"], "--device is 'gpu': .*'cpu', 'cuda' or 'auto'"),
        (["--device-id", "-1"], "--device-id is '-1': .*0"),
        (["--device-memory-fraction", "1.5"], r"--device-memory-fraction is '1\.5': .*1"),
        (["--max-rows", "-1"], "--max-rows is '-1': .*1"),
        (["--grace-period-s", "nan"], "--grace-period-s is 'nan': .*finite"),
        (["--grace-period-s", "1e10"], "--grace-period-s is '1e10': .*1000000"),
        (["--stream-stall-timeout-s", "0"], "--stream-stall-timeout-s is '0': .*greater than 0"),
        (["--max-message-bytes", "10"], "--max-message-bytes is '10': .*1024"),
        (["--host", ""], "--host is '': a value is empty"),
        (["--max-contents", "2000"], "max_contents is 2000 and max_waiting 1024"),
        (["--max-waiting", "100"], "for ever; lower max_contents or raise max_waiting"),
        (["--tls-certificate", "a.pem"], "tls_certificate and tls_key need each other"),
        (["--open", "--no-http"], "open needs http: the playground is on the HTTP port"),
        (["--http-hosts", "a.example", "--no-http"], "http_hosts needs http: it says who may ask the HTTP port, and"),
        (["--http-cors", "*", "--no-http"], "http_cors needs http: it says who may ask the HTTP port, and there is"),
        (["--device-id", "1"], "device_id is 1 and device cpu: it is of CUDA devices; leave it out, or say"),
        (["--device-memory-fraction", "0.5"], r"device_memory_fraction is 0\.5 and device cpu: it is of CUDA devices"),
        (["--trace-sample-ratio", "0.1"], "trace_sample_ratio needs otlp_endpoint: there is nobody to send traces to"),
        (["--tls-client-ca", "a.pem"], "tls_client_ca needs tls_certificate"),
        (["--http-port", "81", "--metrics-port", "81"], "metrics_port and http_port are both 81: each needs a port of"),
        (["--port", "81", "--metrics-port", "81"], "port and metrics_port are both 81: each needs a port of its own"),
        (["--http-hosts", "a.example,b.example:80"], "--http-hosts is 'b.example:80': expected a name without a port"),
        (["--http-hosts", "http://a.example"], "--http-hosts is 'http://a.example': expected a name without"),
        (["--http-cors", "https://a.example/"], "--http-cors is 'https://a.example/': .* without a slash"),
        (["--http-cors", "a.example"], "--http-cors is 'a.example': .* such as https://example.org"),
        (["--otlp-endpoint", "http://a:b"], "--otlp-endpoint is 'http://a:b': expected http://HOST:PORT or"),
        (["--otlp-endpoint", "127.0.0.1:4317"], "--otlp-endpoint is '127.0.0.1:4317': expected http://HOST:PORT"),
        (["--caller-key", "x-tenant-bin"], "--caller-key is 'x-tenant-bin': .* ends with -bin; expected another"),
        (["--caller-key", "authorization"], "--caller-key is 'authorization': what it says is secret, .*; expected"),
        (["--caller-key", "X-Tenant"], "--caller-key is 'X-Tenant': expected up to 64 of a-z, .*, such as x-tenant"),
        (["--log-requests=true"], "--log-requests/--no-log-requests: takes no value, and has 'true'"),
        (["--log-requests", "true"], "true is no flag; packages are named before all flags, and .* take no value"),
    ],
)
def test_a_value_out_of_range_is_refused_with_the_limit(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_settings(arguments)


def test_an_address_may_be_as_urls_have_it() -> None:
    assert load_settings(["--host", "[::1]"]).host == "::1"


@pytest.mark.parametrize("host", ["::", "fe80::1%eth0", "[::ffff:10.0.0.1]", "0.0.0.0", "localhost", "a.example"])
def test_an_address_may_be_any(host: str) -> None:
    assert load_settings(["--host", host]).host == host.strip("[]")


@pytest.mark.parametrize("host", ["127.0.0.1:8500", "localhost:8500", "[::1]:8500", "http://127.0.0.1", "0.0.0.0 "])
def test_an_address_has_no_port(host: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_settings(["--host", host])
    assert str(refused.value).startswith(f"--host is {host!r}: expected an address or a name without a port, such as ")


@pytest.mark.parametrize(
    ("flag", "value", "wanted"),
    [
        ("--http-hosts", "*", "a name without a port and without *"),
        ("--http-hosts", "*.example", "a name without a port and without *"),
        ("--http-hosts", "a.example;b.example", "a name without a port and without *"),
        ("--http-cors", "https://a.example;https://b.example", "* or an origin such as https://example.org"),
        ("--otlp-endpoint", "http://a.example:99999", "a port from 1 to 65535"),
        ("--otlp-endpoint", "https://[::1]:0/", "a port from 1 to 65535"),
    ],
)
def test_what_would_be_another_host_or_port_is_refused(flag: str, value: str, wanted: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_settings([flag, value])
    assert str(refused.value).startswith(f"{flag} is {value!r}: expected {wanted}")


def test_origins_are_those_that_browsers_send() -> None:
    """In lower case, and without the scheme's own port."""
    asked = "https://A.example,https://b.example:443,http://c.example:80,https://d.example:80,null,*"
    known = ("https://a.example", "https://b.example", "http://c.example", "https://d.example:80", "null", "*")
    assert load_settings(["--http-cors", asked]).http_cors == known


def test_a_wrong_value_is_told_under_the_name_it_was_given_by(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^port is -1: "):
        load_settings(["--config", write(tmp_path, "port = -1")])
    monkeypatch.setenv("dragoman_port", "-1")
    with pytest.raises(ConfigError, match=r"^DRAGOMAN_PORT is '-1': "):
        load_settings(["--max-rows", "4"])
    with pytest.raises(ConfigError, match=r"^--port is '-2': "):
        load_settings(["--port", "-2"])


@pytest.mark.parametrize("name", ["port", "http_port"])
def test_a_range_that_compose_takes_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    variable = f"DRAGOMAN_{name.upper()}"
    monkeypatch.setenv(variable, "8500-8502")
    with pytest.raises(ConfigError, match=rf"^{variable} is '8500-8502': a range .*; give one, or unset {variable}$"):
        load_settings([])
    assert getattr(load_settings([f"--{name.replace('_', '-')}", "8501"]), name) == 8501


def test_all_wrong_values_are_told_at_once() -> None:
    with pytest.raises(ConfigError, match=r"--port is '-1'.*; --max-rows is '0'"):
        load_settings(["--port", "-1", "--max-rows", "0"])


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "100000 100000\n"}, 1),
        ({"cpu.max": "100001 100000\n"}, 2),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000\n"}, None),
    ],
)
def test_cores_are_limited_by_the_containers_quota(tmp_path: Path, files: dict[str, str], cores: int | None) -> None:
    without = usable_cores(tmp_path)
    for name, told in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(told)
    assert usable_cores(tmp_path) == min(without, cores or without)
