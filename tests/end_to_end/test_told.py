"""What a server says of itself: models, health, reflection, metrics, and every setting."""

import subprocess

import grpc
import pytest
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from dragoman import Client, Health, InvalidArgument, NotFound
from engine.queueing.express import EXPRESS_ROWS
from models.package.folder import Package
from server.config import PREFIX, Settings
from tests.end_to_end.questions import TEXTS
from tests.server_process import ROOT, WAIT_S, ServerProcess, eventually, server_command

pytestmark = pytest.mark.timeout(600)

SERVICES = ("TranslationService", "EncodingService", "ModelService")


def test_models(client: Client, zoo_package: Package) -> None:
    manifest = zoo_package.manifest
    [model] = client.models()
    assert model == client.model() == client.model("en-pt")
    assert (model.name, model.source_languages, model.target_languages) == ("en-pt", ("en",), ("pt",))
    assert (model.width, model.encoder_layers, model.decoder_layers) == (256, 6, 2)
    assert (model.vocabulary_size, model.max_source_tokens, model.max_new_tokens) == (32001, 512, 512)
    assert (model.max_beams, model.default_decoding.num_beams) == (16, 1)
    assert (model.precision, model.execution_provider) == ("fp32", "CPUExecutionProvider")
    assert (model.package_sha256, model.checkpoint_sha256) == (zoo_package.sha256, manifest.checkpoint.sha256)
    with pytest.raises(NotFound):
        client.model("pt-en")


def test_health(client: Client) -> None:
    for name in ("", *(f"dragoman.v1.{service}" for service in SERVICES)):
        assert client.health(name) is Health.SERVING
    with pytest.raises(NotFound):
        client.health("dragoman.v1.NoService")


def test_reflection(channel: grpc.Channel) -> None:
    reflection = ProtoReflectionDescriptorDatabase(channel)
    names = {f"dragoman.v1.{service}" for service in SERVICES}
    assert {*names, "grpc.health.v1.Health"} <= set(reflection.get_services())
    for name in names:
        file = reflection.FindFileContainingSymbol(name)
        assert [f"{file.package}.{service.name}" for service in file.service] == [name]


def test_metrics_show_the_traffic(server: ServerProcess, client: Client) -> None:
    before = server.metrics()
    translations = client.translate(TEXTS[:3], num_beams=2, no_cache=True)
    vector = client.encode(TEXTS[3])
    with pytest.raises(InvalidArgument):
        client.translate(" ")
    steps = max(translation.timings.steps for translation in translations)
    eventually(lambda: server.metrics()("dragoman_steps_total") - before("dragoman_steps_total") >= steps)
    eventually(lambda: not any(map(server.metrics(), ("dragoman_rows_live", "dragoman_rpc_in_flight"))))
    after = server.metrics()

    def grown(name: str, **labels: str) -> float:
        return after(name, **labels) - before(name, **labels)

    translate = "dragoman.v1.TranslationService/Translate"
    assert grown("dragoman_rpc_requests_total", method=translate, code="OK") == 1
    assert grown("dragoman_rpc_requests_total", method=translate, code="INVALID_ARGUMENT") == 1
    assert grown("dragoman_rpc_duration_seconds_count", method=translate) == 2
    assert grown("dragoman_refusals_total", reason="BLANK_CONTENT") == 1
    assert grown("dragoman_finished_total", model="en-pt", reason="end_token") == 3
    assert grown("dragoman_time_to_first_token_seconds_count", model="en-pt") == 3
    assert grown("dragoman_phase_duration_seconds_count", model="en-pt", phase="encode") == 4
    assert grown("dragoman_target_tokens_total", model="en-pt") == sum(each.tokens for each in translations)
    sources = vector.source_tokens + sum(each.source_tokens for each in translations)
    assert grown("dragoman_source_tokens_total", model="en-pt") == sources
    assert grown("dragoman_rows_computed_total", model="en-pt") > grown("dragoman_steps_total", model="en-pt")
    assert after("dragoman_rows_capacity", model="en-pt") == 2 * 64 + EXPRESS_ROWS
    assert after("dragoman_rows_live", model="en-pt") == after("dragoman_rpc_in_flight") == 0
    assert after("dragoman_model_info", model="en-pt", provider="CPUExecutionProvider", precision="fp32") == 1
    assert after("dragoman_build_info") == 1


def test_help_documents_every_setting() -> None:
    done = subprocess.run(
        server_command("--help"), cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 0
    shown = " ".join(done.stdout.split())
    for name, setting in Settings.model_fields.items():
        assert f"--{name.replace('_', '-')} " in shown
        assert f"[env: {PREFIX}{name.upper()}]" in shown
        assert " ".join((setting.description or "nothing").split()) in shown
