"""What the application of deploy/ray is made of, as far as it needs no Ray."""

import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from deploy.ray.arguments import Arguments, Group
from deploy.ray.autoscaling import QUEUE_S, QueueTime, QueueTimePolicy
from deploy.ray.relayed import Answered, Asked, Refused, RelayedCaller
from deploy.ray.replica.packages import check_models, hashes_of, packages_of
from engine.request import Timings
from server import errors
from server.config import ConfigError, Settings
from server.errors import Overloaded, ServerError, WouldBeLate
from server.telemetry.calls import AnsweredContent, Call
from server.telemetry.metrics.model import ModelFamilies, ModelMetrics

RAY = Path(__file__).parents[2] / "deploy" / "ray"
KUBERAY = Path(__file__).parents[1] / "data" / "kuberay-1.7.0.rayservice.json"
"""What KubeRay's custom resource may have, but for what the pods may: its license is Apache 2.0."""
GROUP = {"name": "en-pt", "packages": ["models/zoo/en-pt"]}


def test_a_node_whose_packages_are_not_the_same_says_which() -> None:
    group = Group.model_validate(GROUP)
    [found] = packages_of(group, hashes := hashes_of(group, "n0"), "n0", "n1")
    assert [found.package.sha256] == hashes
    other = "0" * 64
    told = f"on node n1: models/zoo/en-pt has SHA-256 {hashes[0]}, and {other} on node n0, where Ray Serve has made"
    with pytest.raises(ConfigError, match=f"{told} the application: put the same packages on every node"):
        packages_of(group, [other], "n0", "n1")
    with pytest.raises(ConfigError, match=r"on node n1: .* 1 packages \(models/zoo/en-pt\), and 2 on node n0, where"):
        packages_of(group, [*hashes, other], "n0", "n1")
    missing = group.model_copy(update={"packages": (Path("models/zoo/en-xx"),)})
    way = "put the same packages on every node, and deploy again with another `revision` in args"
    with pytest.raises(ConfigError, match=f"on node n1: models/zoo/en-xx.*{way}"):
        packages_of(missing, hashes, "n0", "n1")
    with pytest.raises(ConfigError, match="on node n0, where the application is made: models/zoo/en-xx is no package"):
        hashes_of(missing, "n0")


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((RAY / name).read_text(encoding="utf-8")))


def test_the_file_of_serve_deploy_is_what_the_application_takes() -> None:
    [config] = documents("dragoman.yaml")
    [application] = config["applications"]
    arguments = Arguments.model_validate(application["args"])
    [group] = arguments.groups
    settings = group.server_settings()
    assert application["import_path"] == "deploy.ray.application:build"
    assert (settings.workers, settings.device, settings.metrics_port) == (1, "cpu", 0)
    assert arguments.entry.server_settings().port == 8500


def test_kubernetes_takes_the_same_application() -> None:
    [service, entry] = documents("rayservice.yaml")
    cluster = service["spec"]["rayClusterConfig"]
    [application] = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    arguments = Arguments.model_validate(application["args"])
    groups = {group["groupName"]: group for group in cluster["workerGroupSpecs"]}
    assert entry["spec"]["selector"]["ray.io/group"] in groups
    assert groups["entry"]["replicas"] == arguments.entry.replicas
    assert set(arguments.entry.resources) == {"entry"}
    assert json.loads(json.loads(groups["entry"]["rayStartParams"]["resources"])) == arguments.entry.resources
    assert cluster["rayVersion"] == "2.60.0"
    [container] = groups["entry"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports["grpc"] == arguments.entry.port == container["readinessProbe"]["grpc"]["port"]


def test_ray_serve_takes_both_files() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own
        schema = pytest.importorskip("ray.serve.schema", reason="the extra `ray` is not installed")
    [service, _] = documents("rayservice.yaml")
    for config in (*documents("dragoman.yaml"), yaml.safe_load(service["spec"]["serveConfigV2"])):
        [application] = schema.ServeDeploySchema.model_validate(config).applications
        assert application.name == "dragoman"
        with pytest.raises(ValidationError, match="import_pat"):
            schema.ServeDeploySchema.model_validate(config | {"applications": [{"import_pat": "x:y"}]})


def pods() -> Iterator[dict[str, Any]]:
    [service, _] = documents("rayservice.yaml")
    cluster = service["spec"]["rayClusterConfig"]
    for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]:
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, **group["template"]}


def test_kubernetes_takes_the_pods_and_the_service() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="`make tools` has not been run")
    [_, entry] = documents("rayservice.yaml")
    for version in ("1.30", "1.36"):
        for thing in [entry, *pods()]:
            validate.validate(thing, version, strict=True)


def strict(schema: Any) -> Any:
    """As the API server has it where a client asks for strict validation: no field that is not named."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = "properties" in schema and "x-kubernetes-preserve-unknown-fields" not in schema
    return {name: strict(value) for name, value in schema.items()} | ({"additionalProperties": False} if closed else {})


def test_kuberay_takes_its_resource_and_no_other_field() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="`make tools` has not been run")
    schema, [service, _] = strict(json.loads(KUBERAY.read_bytes())), documents("rayservice.yaml")
    jsonschema.validate(service, schema)
    group = service["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]
    for name, wrong in (("maxReplicas", "2"), ("maxReplica", 2)):
        with pytest.raises(jsonschema.ValidationError, match=name), pytest.MonkeyPatch.context() as changed:
            changed.setitem(group, name, wrong)
            jsonschema.validate(service, schema)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"min_replicas": 3, "max_replicas": 2}, "min_replicas is 3, and max_replicas 2"),
        ({"num_gpus": 1.5}, r"num_gpus is 1\.5: a replica runs on one GPU; take 1, and more replicas"),
        ({"num_gpus": 2}, "num_gpus is 2: a replica runs on one GPU; take 1, and more replicas"),
        ({"settings": {"device": "cuda"}}, "settings has device, which nobody reads here: other args say it"),
        ({"num_gpus": 1, "settings": {"device_id": 1}}, "settings has device_id, which nobody reads here"),
        ({"memory_mb": 9, "settings": {"memory_mb": 8}}, "memory_mb is 9, and settings has 8: leave it out of"),
        ({"name": "entry"}, "a group is named entry, as the deployment that calls come in by; take another name"),
        ({"settings": {"port": 8500}}, "settings has port"),
        ({"settings": {"tls_key": "key.pem"}}, "settings has tls_key"),
        (
            {"settings": {"shadow_share": 0.1, "watch_packages": True}},
            "settings has shadow_share, watch_packages, which",
        ),
        ({"settings": {"pivot": True}}, "settings has pivot"),
        ({"settings": {"max_row": 3}}, "max_row is no setting; did you mean max_rows?"),
        ({"settings": {"max_rows": 0}}, "max_rows is 0"),
        ({"replicas": 3}, "replicas"),
        ({"packages": []}, "at least 1 item"),
        ({"name": "a b"}, "pattern"),
        ({"num_cpus": float("inf")}, "num_cpus\n.*finite number"),
        ({"queue_s": float("inf")}, "queue_s\n.*finite number"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused_by_name(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told.replace("?", r"\?")) as refused:
        Arguments.model_validate({"groups": [GROUP | change]})
    assert refused.value.error_count() == 1, "what is told beside it is not so"


@pytest.mark.parametrize("revision", [2, "the packages are there now"])
def test_the_same_is_deployed_once_more_as_another_revision(revision: int | str) -> None:
    """Ray Serve makes nothing new of `args` that it has had, also where what it made of them has failed."""
    assert Arguments.model_validate({"groups": [GROUP], "revision": revision}).revision == revision
    with pytest.raises(ValidationError, match="revision"):
        Arguments.model_validate({"groups": [GROUP], "revision": [2]})


def test_no_group_is_told() -> None:
    with pytest.raises(ValidationError, match="groups is empty: name one at least, with its packages"):
        Arguments.model_validate({"groups": []})


@pytest.mark.parametrize("name", ["canary_health", "max_rows", "quota_texts_per_s", "shadow_share", "http"])
def test_an_entry_refuses_what_it_does_not_read(name: str) -> None:
    value = Settings.model_fields[name].default
    with pytest.raises(ValidationError, match=f"settings has {name}, which nobody reads here"):
        Arguments.model_validate({"groups": [GROUP], "entry": {"settings": {name: value}}})


def test_an_entry_has_as_short_a_queue_as_replicas_may_have() -> None:
    """It was refused for `max_contents`, which only they read."""
    short = {"max_waiting": 10, "max_contents": 10}
    groups = [GROUP | {"settings": short}]
    entry = Arguments.model_validate({"groups": groups, "entry": {"settings": {"max_waiting": 10}}}).entry
    assert entry.server_settings().max_waiting == 10


def test_entries_that_share_a_port_do_not_share_that_of_metrics() -> None:
    """The second one on a node would not start, again and again."""
    entry = {"replicas": 2, "shared_port": True}
    with pytest.raises(ValidationError, match=r"metrics_port is 9500 and shared_port true: .*; take 0, which picks"):
        Arguments.model_validate({"groups": [GROUP], "entry": entry})
    assert Arguments.model_validate({"groups": [GROUP], "entry": entry | {"metrics_port": 0}}).entry.shared_port


def test_a_part_of_a_gpu_is_a_part_of_its_memory() -> None:
    [group] = Arguments.model_validate({"groups": [GROUP | {"num_gpus": 0.5, "memory_mb": 2048, "loaded": 2}]}).groups
    settings = group.server_settings()
    assert (settings.device, settings.device_memory_fraction, settings.workers) == ("cuda", 0.45, None)
    assert (settings.memory_mb, group.actor_options()["memory"]) == (1024, 2048 * 2**20)


def test_two_groups_need_two_names() -> None:
    with pytest.raises(ValidationError, match="two groups are named en-pt"):
        Arguments.model_validate({"groups": [GROUP, GROUP]})


def test_two_models_need_two_names() -> None:
    """Whatever their groups are: an entry knows a model by its name."""
    zoo = [str(folder) for folder in sorted(Path("models/zoo").iterdir()) if folder.is_dir()]
    other = {"name": "others", "packages": zoo[1:]}
    check_models(Arguments.model_validate({"groups": [GROUP | {"packages": zoo[:1]}, other]}).groups)
    told = f"{zoo[0]} of group en-pt and {zoo[0]} of group others are both named en-pt: leave one out, or export it"
    with pytest.raises(ConfigError, match=told):
        check_models(Arguments.model_validate({"groups": [GROUP, other | {"packages": zoo}]}).groups)
    with pytest.raises(ConfigError, match=r"group en-pt: nowhere is not a package"):
        check_models([Group.model_validate(GROUP | {"packages": ["nowhere"]})])


def timings(queue: float) -> Timings:
    return Timings(queue, 0.0, 0.0, 1)


def test_time_in_the_queue_is_that_of_the_metrics() -> None:
    """Since it was asked for last; and of texts that nobody answers, as long as nobody does."""
    registry, clock = CollectorRegistry(), [0.0]
    model, queue = ModelMetrics(ModelFamilies(registry), "en-pt"), QueueTime(lambda: clock[0])
    assert queue.seconds([registry]) == 0
    for seconds in (0.1, 0.3):
        model.encoded(timings(seconds), 3)
    assert queue.seconds([registry]) == pytest.approx(0.2)
    assert queue.seconds([registry]) == 0
    model.waiting(5)
    clock[0] = 4.0
    assert queue.seconds([registry]) == 4
    clock[0] = 6.0
    assert queue.seconds([registry, CollectorRegistry()]) == 6


@pytest.mark.parametrize(
    ("replicas", "reported", "wanted"),
    [
        (2, [], 2),
        (2, [0.1, 0.1], 2),
        (2, [0.0, 0.3], 3),
        (3, [9.0, 9.0, 9.0], 6),
        (3, [0.01, 0.02, 0.0], 2),
        (1, [0.0], 1),
        (4, [0.05, 0.05], 4),
    ],
)
def test_replicas_follow_the_time_in_the_queue(replicas: int, reported: list[float], wanted: int) -> None:
    assert QueueTimePolicy(0.1).wanted(replicas, reported) == wanted


def test_the_policy_reads_what_ray_serve_tells_it() -> None:
    """By Ray's own context, whose metrics are those that replicas report, by their names and then by replica."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own
        config = pytest.importorskip("ray.serve.config", reason="the extra `ray` is not installed")
        common = pytest.importorskip("ray.serve._private.common")
    deployment = common.DeploymentID(name="en-pt", app_name="dragoman")
    one, two = (common.ReplicaID(unique_id=name, deployment_id=deployment) for name in ("one", "two"))

    def wanted(metrics: object) -> object:
        context = config.AutoscalingContext(
            deployment_id=deployment,
            deployment_name=deployment.name,
            app_name=deployment.app_name,
            current_num_replicas=1,
            target_num_replicas=2,
            running_replicas=[one],
            total_num_requests=900.0,  # of which nothing follows
            total_queued_requests=900.0,
            aggregated_metrics=metrics,
            raw_metrics=None,
            capacity_adjusted_min_replicas=1,
            capacity_adjusted_max_replicas=9,
            policy_state={},
            last_scale_up_time=None,
            last_scale_down_time=None,
            current_time=None,
            config=None,
        )
        return QueueTimePolicy(0.1)(context)

    assert wanted({QUEUE_S: {one: 0.125, two: 0.125}}) == (3, {})
    assert wanted(lambda: {QUEUE_S: {one: 0.0, two: 0.0}}) == (1, {})
    assert wanted({"other": {one: 9.0}}) == wanted({}) == wanted(None) == (2, {})


def every_error() -> list[type[ServerError]]:
    return [kind for kind in (getattr(errors, name) for name in errors.__all__) if "reason" in vars(kind)]


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: str(kind.reason))
def test_an_error_of_a_replica_is_the_same_error_at_the_entry(kind: type[ServerError]) -> None:
    made = kind.__new__(kind)
    ServerError.__init__(made, "what is wrong", {"limit": 3}, "contents[0]", 1.5)
    error = Refused.by(made).error()
    assert type(error) is kind
    assert (error.status, error.reason) == (made.status, made.reason)
    assert (error.message, error.metadata, error.field, error.retry_after_s) == (
        "what is wrong",
        {"limit": "3"},
        "contents[0]",
        1.5,
    )


def test_what_a_replica_tells_of_a_call_is_in_the_time_of_the_entry() -> None:
    there = Call(model="en-pt", started=1000.0)
    there.contents.append(AnsweredContent("Good day", "Bom dia", timings(0.5), 1000.1, 1000.2, 1001.0, 3, 2))
    here = Call(started=5.0)
    Answered.by(there, b"response").tell(here, sent=7.0)
    [content] = here.contents
    assert here.model == "en-pt"
    assert (content.tokenized, content.arrived, content.detokenized) == pytest.approx((7.1, 7.2, 8.0))


async def test_a_deadline_is_what_is_left_of_it() -> None:
    call = Call(request_id="a1", caller="team", bulk=True)
    call.deadline = call.started + 5.0
    began = time.perf_counter()
    asked = Asked.of("dragoman.v1.TranslationService/Translate", b"", call)
    caller = RelayedCaller(asked)
    assert caller.deadline is not None
    later_s = caller.deadline - call.deadline  # by what it took to hand it on
    assert 0 <= later_s <= time.perf_counter() - began
    assert (caller.name, caller.metadata) == ("team", {"x-request-id": "a1", "x-dragoman-class": "bulk"})
    await caller.refuse(call, WouldBeLate(3.0, 2.0, 1.0))
    assert caller.refused == Refused.by(WouldBeLate(3.0, 2.0, 1.0)) != Refused.by(Overloaded(3, 2, 1.0))
