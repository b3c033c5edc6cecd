"""Every setting of the server, read and checked once.

Flags go before environment variables (`DRAGOMAN_*`), these before the file of `--config`, this before the defaults.
Unknown keys fail. docs/configuration.md lists all settings.
"""

import os
import re
import tomllib
from argparse import ArgumentParser
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import (
    BaseSettings,
    CliApp,
    CliImplicitFlag,
    CliSettingsSource,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from server.settings.flags import FlagError, Flags, ShowVersion, suggest
from server.settings.forms import WANTED, WANTED_KINDS, Address, CallerKey, Collector, HostName, Origin

PREFIX = "DRAGOMAN_"
OTHERS_VARIABLES = {"DRAGOMAN_CPUS", "DRAGOMAN_HOME", "DRAGOMAN_TARGET", "DRAGOMAN_TOKEN", "DRAGOMAN_TOKEN_FILE"}
"""With our prefix, but those of commands and of docker-compose.yml."""


class ConfigError(Exception):
    """Settings that cannot be used. The message says which and why."""


USUAL_PORTS = {"http": ":80", "https": ":443"}


class Settings(BaseSettings):
    """Serves an exported translation model over gRPC."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=PREFIX,
        use_attribute_docstrings=True,
        cli_prog_name="python -m server",
        cli_kebab_case=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
    )

    config: Path | None = None
    """TOML file with any of these settings, under the names of the flags with underscores."""
    package: Annotated[tuple[Path, ...], NoDecode] = Field(default=(Path("models/zoo/en-pt"),), min_length=1)
    """Folder that `python -m export` wrote, or a folder of such folders. Repeat it, or put commas between several; the
    first model is the default one."""
    skip_bad: CliImplicitFlag[bool] = False
    """Go on without packages that cannot be used, where others can: the log says which and why."""
    pivot: CliImplicitFlag[bool] = False
    """Let requests ask for a way through a third language, where no model has both of theirs."""
    require_signed: Path | None = None
    """PEM file with an Ed25519 public key: only packages that its owner has signed are served."""
    host: Address = "127.0.0.1"
    """Address to listen on, for gRPC, HTTP and metrics. "0.0.0.0" is every IPv4 interface."""
    port: int = Field(default=8500, ge=0, le=65535)
    """gRPC port. 0 picks a free one."""
    metrics_port: int = Field(default=9500, ge=0, le=65535)
    """HTTP port of the Prometheus endpoint /metrics. 0 picks a free one."""
    http: CliImplicitFlag[bool] = True
    """Answer HTTP too: JSON, event streams, and what clients of some other services know. Needs the extra `http`;
    without it, the log says so."""
    http_port: int = Field(default=8580, ge=0, le=65535)
    """HTTP port. 0 picks a free one."""
    open: CliImplicitFlag[bool] = False
    """Show the playground in a browser, once it is there."""
    http_hosts: Annotated[tuple[HostName, ...], NoDecode] = ()
    """Names, without a port, that HTTP requests may be for; repeat it, or put commas between several. Default: on a
    loopback address localhost and its addresses, which are always answered; on others any."""
    http_cors: Annotated[tuple[Origin, ...], NoDecode] = ()
    """Origins whose pages may use the HTTP port in a browser, such as https://example.org; "*" is every one."""
    device: Literal["cpu", "cuda", "auto"] = "cpu"
    """Where the model runs. "auto": on CUDA if all it needs is there, else on the CPU; the log says which and why."""
    device_id: int = Field(default=0, ge=0)
    """Which CUDA device, as CUDA counts them (CUDA_VISIBLE_DEVICES hides some)."""
    device_memory_fraction: float = Field(default=0.9, gt=0, le=1)
    """Share of the CUDA device's memory that may be used."""
    cuda_graphs: CliImplicitFlag[bool] = True
    """Launch a decoder step as one captured CUDA graph, not kernel by kernel."""
    kernels: Literal["auto", "off", "required"] = "auto"
    """Our own CPU operators. "auto": where they are built and pass their probes; the log says which run, or why not."""
    workers: int | None = Field(default=None, ge=1, le=1024)
    """Engine threads, each with a running batch of its own. Default, and best: one for every core, on a CPU
    fewer where memory is short; on CUDA one."""
    engine_restarts: int = Field(default=8, ge=0)
    """Engines that fail begin anew so often in engine_restart_window_s; then the process ends, with exit code 1."""
    engine_restart_window_s: float = Field(default=600.0, gt=0, allow_inf_nan=False)
    """In which time failures of engines are counted."""
    canary_interval_s: float = Field(default=3600.0, ge=0, allow_inf_nan=False)
    """How often the package's probes are translated and compared with their known answers, and at start. 0: never."""
    canary_health: CliImplicitFlag[bool] = False
    """Health says NOT_SERVING while the probes' answers are not as they must be."""
    watch_packages: CliImplicitFlag[bool] = True
    """Take up a package whose manifest has changed in its folder, as `dragoman reload` does."""
    shadow_share: float = Field(default=0.0, ge=0, le=1)
    """Share of the live translations that the new version of a model answers, too, before it serves. 0: none."""
    shadow_contents: int = Field(default=200, ge=1)
    """Texts of them that are compared."""
    shadow_equal_texts: float = Field(default=0.99, ge=0, le=1)
    """Least share of texts that are equal. Fewer: the new version is refused."""
    shadow_score_difference: float = Field(default=0.01, ge=0, allow_inf_nan=False)
    """Most that two scores of one text may differ."""
    shadow_slowdown: float = Field(default=1.25, gt=0, allow_inf_nan=False)
    """Most time that the new version may take, for that of the one that serves."""
    shadow_timeout_s: float = Field(default=600.0, gt=0, allow_inf_nan=False)
    """In which so many texts must have been compared; else the new version is refused."""
    max_rows: int | None = Field(default=None, ge=1, le=4096)
    """Rows of a worker's running batch. Greedy search takes one for each text, beam search `num_beams`. Default: 64; on
    a CPU fewer, where memory is short."""
    memory_mb: int | None = Field(default=None, ge=1)
    """Memory that the process may take, in megabytes, to serve on a CPU. Default: all of its container or machine."""
    max_waiting: int = Field(default=1024, ge=1)
    """Texts that may wait for a row. Calls that would bring more are refused with UNAVAILABLE."""
    max_contents: int = Field(default=256, ge=1)
    """Texts of one call. Not more than max_waiting."""
    cache_mb: int = Field(default=32, ge=0, le=1024 * 1024)
    """Size of the answers that are kept for those who ask the same again, in megabytes. 0 keeps none."""
    max_source_tokens: int | None = Field(default=None, ge=1)
    """Tokens of one text, the end token included. Default: what the model takes, which is also the most."""
    max_new_tokens: int | None = Field(default=None, ge=1)
    """Most target tokens a call may ask for, the end token included. Default: what the model takes, also the most."""
    max_message_bytes: int = Field(default=2 * 1024 * 1024, ge=1024, le=128 * 1024 * 1024)
    """Size of a request."""
    max_document_bytes: int = Field(default=4 * 1024 * 1024, ge=1024, le=128 * 1024 * 1024)
    """Size of a document, unpacked, and of all that are translated at a time; where memory is short, a thousandth of
    it. One whose file is larger than max_message_bytes is refused in any case."""
    max_document_texts: int = Field(default=10_000, ge=1)
    """Texts of a document, such as paragraphs."""
    max_concurrent_streams: int = Field(default=2048, ge=1, le=2**31 - 1)
    """Calls of one connection that may be under way at a time. A client keeps those that are more to itself."""
    max_connections: int = Field(default=1024, ge=1, le=2**31 - 1)
    """Connections to the gRPC port, and as many to the HTTP port. One more is closed at once; to the HTTP port it takes
    the place of an idle one where its address has fewer than another."""
    max_incoming: int | None = Field(default=None, ge=2, le=65536)
    """Requests that may be coming in at a time, three of four slowly: each counts as the largest. Default: 8; fewer,
    where memory is short."""
    connection_age_s: float = Field(default=1800.0, ge=1, le=10**6)
    """After so long, a tenth more or less, a client is told to connect anew, so that new servers get their share."""
    connection_age_grace_s: float = Field(default=300.0, ge=1, le=10**6)
    """How long calls may go on over a connection whose client was told to leave it. It is closed then."""
    connection_idle_s: float = Field(default=300.0, ge=1, le=10**6)
    """A connection without a call is closed after so long."""
    grace_period_s: float = Field(default=30.0, ge=0, le=10**6, allow_inf_nan=False)
    """How long running calls may go on after SIGTERM or SIGINT. A second signal ends them at once."""
    request_timeout_s: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    """How long a client may take to send the request of a call."""
    stream_stall_timeout_s: float = Field(default=30.0, gt=0, allow_inf_nan=False)
    """How long a client may leave a message of a stream unread before the stream is aborted."""
    tls_certificate: Path | None = None
    """PEM file with the server's certificate chain. Makes the gRPC and HTTP ports TLS. Needs tls_key."""
    tls_key: Path | None = None
    """PEM file with the private key of tls_certificate."""
    tls_client_ca: Path | None = None
    """PEM file with the certificates that client certificates must be signed by. Makes TLS mutual."""
    callers: Path | None = None
    """TOML file with those who may call, their tokens' hashes or certificates, scopes and quotas. Read again when it
    changes, and on SIGHUP."""
    jwt_keys: str | None = Field(default=None, min_length=1)
    """JSON Web Key Set of an issuer whose tokens say who calls: a file, or an https:// URL. Needs the two below."""
    jwt_issuer: str | None = Field(default=None, min_length=1)
    """The `iss` that its tokens must have."""
    jwt_audience: str | None = Field(default=None, min_length=1)
    """The `aud` that its tokens must have: the name by which it knows this server."""
    caller_key: CallerKey | None = None
    """Metadata that names the caller of calls without an identity. Any caller may write it. Default: none, the host."""
    quota_texts_per_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Most texts of a caller in a second, where `callers` gives it no quota of its own."""
    quota_cost_per_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Most seconds of a worker that its texts may be expected to take, in a second. 0.5 is half of one worker."""
    quota_calls: int | None = Field(default=None, ge=1)
    """Most of its calls that may be under way."""
    reuse_port: CliImplicitFlag[bool] = False
    """Share the gRPC port with other servers of this machine and user that say so too; the kernel spreads connections.
    Each needs a metrics_port of its own."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe messages to log."""
    log_format: Literal["text", "json"] = "text"
    """Lines for people, or JSON objects."""
    log_requests: CliImplicitFlag[bool] = False
    """Log a line for every call: its id, method, code, tokens and timings."""
    log_labels: CliImplicitFlag[bool] = False
    """Log and trace the labels that callers give their calls. Needs log_requests or otlp_endpoint."""
    log_text: CliImplicitFlag[bool] = False
    """Log what calls say and are answered, too. Needs log_requests."""
    otlp_endpoint: Collector | None = None
    """OpenTelemetry collector to send traces to by OTLP over gRPC, such as http://127.0.0.1:4317; https:// is TLS."""
    trace_sample_ratio: float = Field(default=1.0, ge=0, le=1)
    """Share of the calls that come without a trace of their own to send traces of. Others are as their caller says."""

    @field_validator("*", mode="before")
    @classmethod
    def _not_empty(cls, value: object, info: ValidationInfo) -> object:
        """An empty path would be the current folder, and the system takes none with a NUL. A package says so itself."""
        values = value if isinstance(value, list | tuple) else [value]
        if "" in values:
            raise PydanticCustomError("empty", "a value is empty; leave it out")
        if info.field_name != "package" and any("\0" in str(one) for one in values):
            raise PydanticCustomError("nul", "a value has a NUL, which nothing is named by; leave that out")
        return value

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_as_number(cls, value: object, info: ValidationInfo) -> object:
        """True would be taken for 1."""
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation is not bool:
            raise PydanticCustomError("truth", "expected another value than true or false")
        return value

    @field_validator("port", "http_port", mode="before")
    @classmethod
    def _one_port(cls, value: object, info: ValidationInfo) -> object:
        """docker-compose.yml reads these variables, too, and takes ranges for several servers."""
        if isinstance(value, str) and re.fullmatch(r"\d+-\d+", value):
            variable = f"{PREFIX}{info.field_name}".upper()
            raise PydanticCustomError(
                "range", f"a range of ports is for several servers of docker compose; give one, or unset {variable}"
            )
        return value

    @field_validator("package", "http_hosts", "http_cors", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """Flags and variables come as one text."""
        if isinstance(value, str):
            return [one.strip() for one in value.split(",")]
        return (value,) if isinstance(value, Path) else value

    @field_validator("host")
    @classmethod
    def _without_brackets(cls, host: str) -> str:
        """Of IPv6, that URLs have around it."""
        return host[1:-1] if host.startswith("[") and host.endswith("]") else host

    @field_validator("http_cors")
    @classmethod
    def _as_browsers_say(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        """In lower case and without the port that the scheme has anyway, which no browser would ever send."""
        return tuple(one.lower().removesuffix(USUAL_PORTS.get(one.partition(":")[0], "")) for one in origins)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        ports = {"port": self.port, "metrics_port": self.metrics_port, "http_port": self.http_port if self.http else 0}
        for (name, port), (other, equal) in combinations(ports.items(), 2):
            if port == equal != 0:
                raise ValueError(f"{name} and {other} are both {port}: each needs a port of its own")
        if self.open and not self.http:
            raise ValueError("open needs http: the playground is on the HTTP port")
        if (told := [name for name in ("http_hosts", "http_cors") if getattr(self, name)]) and not self.http:
            raise ValueError(f"{told[0]} needs http: it says who may ask the HTTP port, and there is none")
        for name in ("device_id", "device_memory_fraction"):
            value = getattr(self, name)
            if self.device == "cpu" and value != type(self).model_fields[name].default:
                raise ValueError(f"{name} is {value} and device cpu: it is of CUDA devices; leave it out, or say cuda")
        if self.max_contents > self.max_waiting:
            raise ValueError(
                f"max_contents is {self.max_contents} and max_waiting {self.max_waiting}: "
                "a call with that many texts would be refused for ever; lower max_contents or raise max_waiting"
            )
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key need each other")
        if self.tls_client_ca is not None and self.tls_certificate is None:
            raise ValueError("tls_client_ca needs tls_certificate and tls_key")
        jwt = [self.jwt_keys, self.jwt_issuer, self.jwt_audience]
        if None in jwt and any(jwt):
            raise ValueError("jwt_keys, jwt_issuer and jwt_audience need each other")
        if self.canary_health and not self.canary_interval_s:
            raise ValueError("canary_health needs canary_interval_s: nothing would be compared")
        if self.log_text and not self.log_requests:
            raise ValueError("log_text needs log_requests: the texts would go into the line of their call")
        if self.log_labels and not self.log_requests and self.otlp_endpoint is None:
            raise ValueError("log_labels needs log_requests or otlp_endpoint: there is nothing to add the labels to")
        if self.trace_sample_ratio != 1 and self.otlp_endpoint is None:
            raise ValueError("trace_sample_ratio needs otlp_endpoint: there is nobody to send traces to")
        if self.log_requests and self.log_level not in ("debug", "info"):
            raise ValueError(f"log_requests writes lines of level info, and log_level is {self.log_level}: lower it")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Most important first. pydantic-settings puts the flags before all of them."""
        return init_settings, env_settings, _File(settings_cls)


class _File(InitSettingsSource):
    """The file that a flag or an environment variable names, read as a whole once they are known."""

    def __init__(self, settings_cls: type[BaseSettings]) -> None:
        super().__init__(settings_cls, {})

    def __call__(self) -> dict[str, Any]:
        file = self.current_state.get("config")
        if not file:  # an empty one is refused with the others
            return {}
        values = _read_toml(Path(file))
        if "config" in values:
            raise ConfigError(f"{file}: config: a configuration file cannot name another one")
        for name in values:
            if name not in Settings.model_fields:
                raise ConfigError(f"{file}: {name} is no setting{suggest(name.lower(), Settings.model_fields)}")
        return values


def load_settings(arguments: Sequence[str]) -> Settings:
    """Reads flags, environment and file. Raises ConfigError.

    Exits the process for `--help` and `--version`.
    """
    _refuse_unknown(os.environ)
    parser = Flags(str(Settings.model_config["cli_prog_name"]), description=Settings.__doc__, allow_abbrev=False)
    parser.add_argument("--version", action=ShowVersion, nargs=0, help="show the server's version and exit")
    flags: CliSettingsSource[ArgumentParser] = CliSettingsSource(Settings, root_parser=parser)
    parser.describe(Settings.model_fields)
    try:
        return CliApp.run(Settings, cli_args=list(arguments), cli_settings_source=flags)
    except FlagError as error:
        raise ConfigError(str(error)) from error
    except ValidationError as error:
        raise ConfigError(explained(error, [*arguments, *map(str.upper, os.environ)])) from error


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))  # with the mark of some editors
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: byte {error.start + 1} is not UTF-8; convert the file to UTF-8 first") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: {getattr(error, 'strerror', None) or error}") from error


def _refuse_unknown(environment: Mapping[str, str]) -> None:
    known = OTHERS_VARIABLES | {PREFIX + name.upper() for name in Settings.model_fields}
    for name in environment:
        if name.upper().startswith(PREFIX) and name.upper() not in known:
            raise ConfigError(f"environment variable {name} is no setting{suggest(name.upper(), known)}")


def explained(error: ValidationError, given: Sequence[str] = ()) -> str:
    """What is wrong with which settings, on one line, under the flags and variables of `given`, or else by name."""
    return "; ".join(_explain(error, {one.partition("=")[0] for one in given}))


def _explain(error: ValidationError, given: Container[str]) -> Iterable[str]:
    for problem in error.errors():
        name = ".".join(map(str, problem["loc"]))
        if problem["type"] == "extra_forbidden":
            yield f"{name} is no setting{suggest(name, Settings.model_fields)}"
        elif name:
            setting = name.partition(".")[0]
            names = f"--{setting.replace('_', '-')}", f"{PREFIX}{setting.upper()}"
            called = next((one for one in names if one in given), name)
            wanted = WANTED.get(problem.get("ctx", {}).get("pattern", "")) or WANTED_KINDS.get(problem["type"])
            told = f"expected {wanted}" if wanted else problem["msg"].partition(", unable")[0]
            yield f"{called} is {problem['input']!r}: {told}"
        else:
            yield str(problem["ctx"]["error"])
