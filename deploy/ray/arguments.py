"""What the application is told by the file that `serve deploy` reads."""

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from server.config import ConfigError, Settings
from server.local.engine import given_settings

GPU_SHARE = 0.9
"""Of a GPU's memory that a replica takes which has all of it: the default of `device_memory_fraction`."""
ENTRY = "entry"
"""Name of the deployment of entries."""
OF_ALL = frozenset(
    {"grace_period_s", "log_format", "log_labels", "log_level", "log_requests", "log_text", "max_document_bytes"}
    | {"max_message_bytes", "max_waiting", "memory_mb", "otlp_endpoint", "trace_sample_ratio"}
)
OF_A_REPLICA = OF_ALL | {
    *("cache_mb", "canary_health", "canary_interval_s", "cuda_graphs", "device_memory_fraction"),
    *("engine_restart_window_s", "engine_restarts", "kernels", "max_contents", "max_document_texts", "max_new_tokens"),
    *("max_rows", "max_source_tokens", "require_signed", "workers"),
}
"""Settings that it reads. All others are refused: nobody is to believe that they do something.

Its device is what Ray keeps for it, by `num_gpus`.
"""
OF_AN_ENTRY = OF_ALL | {
    *("caller_key", "callers", "connection_age_grace_s", "connection_age_s", "connection_idle_s", "jwt_audience"),
    *("jwt_issuer", "jwt_keys", "max_concurrent_streams", "max_connections", "max_incoming", "pivot", "quota_calls"),
    *("request_timeout_s", "stream_stall_timeout_s", "tls_certificate", "tls_client_ca", "tls_key"),
}


class Part(BaseModel):
    """Of the application."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    settings: Mapping[str, Any] = Field(default_factory=dict)
    """Of a server, by the names of docs/configuration.md."""
    resources: Mapping[str, float] = Field(default_factory=dict)
    """Of a replica, beside processors: only nodes that have so much of each of these names get one."""

    reads: ClassVar[frozenset[str]]
    """Settings."""

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        if unread := sorted(self.settings.keys() & Settings.model_fields.keys() - self.reads):
            raise ValueError(
                f"settings has {', '.join(unread)}, which nobody reads here: other args say it, or it is not to be had "
                "on Ray; docs/deploy.md has both"
            )
        try:
            self.server_settings()
        except ConfigError as error:
            raise ValueError(f"settings: {error}") from error
        return self

    @abstractmethod
    def server_settings(self) -> Settings:
        """As a server has them. Raises ConfigError."""


class Group(Part):
    """A deployment: packages that are on the same replicas. Mostly one."""

    reads = OF_A_REPLICA

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Of the deployment."""
    packages: tuple[Path, ...] = Field(min_length=1)
    """Folders, at the same place on every node."""
    loaded: int | None = Field(default=None, ge=1)
    """So many of the packages a replica has in memory: those that were asked for last. None: all of them."""
    min_replicas: int = Field(default=1, ge=0)
    max_replicas: int = Field(default=1, ge=1)
    queue_s: float = Field(default=0.1, gt=0)
    """Mean time in the queue that there are more replicas for, in seconds."""
    upscale_delay_s: float = Field(default=10.0, ge=0)
    downscale_delay_s: float = Field(default=300.0, ge=0)
    num_cpus: float = Field(default=1.0, ge=0)
    """Of a replica, which has so many workers, on a CPU."""
    num_gpus: float = Field(default=0.0, ge=0)
    """Of a replica: 0.5 is half of one. More than 0 serves on CUDA."""
    memory_mb: int | None = Field(default=None, ge=1)
    """Of a replica. None: Ray does not count it, and a replica may take all that its node has."""

    @model_validator(mode="after")
    def _check_replicas(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise ValueError(f"min_replicas is {self.min_replicas}, and max_replicas {self.max_replicas}")
        if self.num_gpus > 1:
            raise ValueError(f"num_gpus is {self.num_gpus:g}: a replica runs on one GPU; take 1, and more replicas")
        if self.memory_mb is not None and "memory_mb" in self.settings:
            other = self.settings["memory_mb"]
            raise ValueError(f"memory_mb is {self.memory_mb}, and settings has {other}: leave it out of settings")
        return self

    def server_settings(self) -> Settings:
        device: Literal["cpu", "cuda"] = "cuda" if self.num_gpus else "cpu"
        own: dict[str, Any] = {"device": device, "metrics_port": 0, "memory_mb": self.memory_of_each()}
        if self.num_gpus:
            own["device_memory_fraction"] = min(GPU_SHARE, GPU_SHARE * self.num_gpus)
        else:
            own["workers"] = max(1, int(self.num_cpus))
        return given_settings({"package": self.packages, **own, **self.settings})

    @property
    def most_waiting(self) -> int:
        """Calls that may wait where every replica has as many as it takes: one full queue."""
        return self.server_settings().max_waiting

    def memory_of_each(self) -> int | None:
        """Megabytes, of what is loaded at a time."""
        return None if self.memory_mb is None else max(1, self.memory_mb // (self.loaded or 1))

    def actor_options(self) -> dict[str, Any]:
        """What Ray keeps for a replica."""
        memory = {} if self.memory_mb is None else {"memory": self.memory_mb * 2**20}
        return {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus, "resources": dict(self.resources), **memory}


class Entry(Part):
    """Where calls come in: a gRPC server on a node."""

    reads = OF_AN_ENTRY

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=8500, ge=1, le=65535)
    metrics_port: int = Field(default=9500, ge=0, le=65535)
    replicas: int = Field(default=1, ge=1)
    """Each on a node of its own, but for `shared_port`."""
    shared_port: bool = False
    """Several on one node, which share the port by the number of connections (SO_REUSEPORT)."""
    num_cpus: float = Field(default=1.0, ge=0)

    def actor_options(self) -> dict[str, Any]:
        """What Ray keeps for a replica."""
        return {"num_cpus": self.num_cpus, "resources": dict(self.resources)}

    @model_validator(mode="after")
    def _check_ports(self) -> Self:
        if self.shared_port and self.replicas > 1 and self.metrics_port:
            raise ValueError(
                f"metrics_port is {self.metrics_port} and shared_port true: entries on one node need a metrics port "
                "each; take 0, which picks a free one, and Prometheus is told which"
            )
        return self

    def server_settings(self) -> Settings:
        own = {"host": self.host, "port": self.port, "metrics_port": self.metrics_port, "reuse_port": self.shared_port}
        # Only replicas read it, and check it by their own `max_waiting`: here it is to fit any.
        return given_settings({**own, "max_contents": 1, **self.settings})


class Arguments(BaseModel):
    """`args` of the application."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    entry: Entry = Field(default_factory=Entry)
    groups: tuple[Group, ...]
    revision: int | str = 0
    """Another one has all of it deployed once more: of `args` that it has had, Ray Serve makes nothing new."""

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        if not self.groups:
            raise ValueError("groups is empty: name one at least, with its packages")
        names = [group.name for group in self.groups]
        if ENTRY in names:
            raise ValueError(f"a group is named {ENTRY}, as the deployment that calls come in by; take another name")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two groups are named {twice[0]}")
        return self
