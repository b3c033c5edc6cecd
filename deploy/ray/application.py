"""The application: `serve deploy` calls `build` with the `args` of its file."""

from collections.abc import Sequence
from typing import Any

import ray
from ray import serve
from ray.serve import Application
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy
from ray.serve.schema import LoggingConfig

from deploy.ray.arguments import ENTRY, Arguments, Group
from deploy.ray.autoscaling import QueueTimePolicy
from deploy.ray.entry.server import EntryServer
from deploy.ray.replica.packages import check_models, hashes_of
from deploy.ray.replica.replica import Replica, shelf
from dragoman.bulk.cluster.version import check_version
from server.lifecycle import END_S

ONGOING = 4
"""Calls that a replica has for each text that may wait: it refuses by itself, and says when to come back."""


WAIT_LOOP_S = 0.1
"""How often a replica that ends looks whether its calls have ended."""
LOGGING = LoggingConfig(enable_access_log=False)
"""Ray Serve would write a line for every call; `log_requests` of the entry says more."""


def build(args: Arguments) -> Application:
    """A deployment for each group, and the entries before them.

    Raises WrongUsage where Ray has another version, and ConfigError where a package is missing, or two have models of
    one name.
    """
    check_version()
    node = ray.util.get_node_ip_address()
    hashes = [hashes_of(group, node) for group in args.groups]
    check_models(args.groups)
    handles = [_deployed(group, its, node) for group, its in zip(args.groups, hashes, strict=True)]
    entry, settings = args.entry, args.entry.server_settings()
    options: dict[str, Any] = {} if entry.shared_port else {"max_replicas_per_node": 1}
    deployment = serve.deployment(
        name=ENTRY,
        num_replicas=entry.replicas,
        ray_actor_options=entry.actor_options(),
        graceful_shutdown_timeout_s=settings.grace_period_s + END_S,
        graceful_shutdown_wait_loop_s=WAIT_LOOP_S,
        logging_config=LOGGING,
        **options,
    )(EntryServer)
    return deployment.bind(entry, args.groups, handles, hashes)


def _deployed(group: Group, hashes: Sequence[str], made_on: str) -> Application:
    settings = group.server_settings()
    autoscaling = AutoscalingConfig(
        min_replicas=group.min_replicas,
        max_replicas=group.max_replicas,
        upscale_delay_s=group.upscale_delay_s,
        downscale_delay_s=group.downscale_delay_s,
        policy=AutoscalingPolicy(policy_function=QueueTimePolicy, policy_kwargs={"target_s": group.queue_s}),
    )
    deployment = serve.deployment(
        name=group.name,
        autoscaling_config=autoscaling,
        ray_actor_options=group.actor_options(),
        max_ongoing_requests=ONGOING * settings.max_waiting,
        max_queued_requests=group.most_waiting,
        graceful_shutdown_timeout_s=settings.grace_period_s + END_S,
        graceful_shutdown_wait_loop_s=WAIT_LOOP_S,
        logging_config=LOGGING,
    )(Replica if group.loaded is None else shelf(group.loaded))
    return deployment.bind(group, hashes, made_on)
