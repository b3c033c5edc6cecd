"""The services of an entry before a model in this process: what Ray would carry is handed over here, or lost."""

import asyncio
import pickle
import socket
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray's own
    pytest.importorskip("ray.serve", reason="the extra `ray` is not installed")

from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError

from bench.process import free_port
from deploy.ray.arguments import Entry, Group
from deploy.ray.entry import forwarding, routes, server
from deploy.ray.entry.forwarding import ATTEMPTS, Forwarding, Route
from deploy.ray.entry.routes import Deployed, Routes
from deploy.ray.relayed import Asked, Described
from deploy.ray.replica import models, replica
from deploy.ray.replica.models import Models
from deploy.ray.replica.replica import Replica
from dragoman import AsyncClient, Internal, InvalidArgument, TextDelta, TranslatedDocument, Unavailable
from engine.loading.probes import KnownTranslation, known_answers
from server.api.service import SERVICES
from server.catalog.catalog import Catalog
from server.catalog.packages import open_packages
from server.catalog.served_model import ServedModel
from server.config import ConfigError, Settings
from server.grpc.rpc import RpcInterceptor
from server.telemetry.logs import CallLog
from server.telemetry.metrics.call import CallMetrics
from server.telemetry.observed import ObservedCalls
from server.telemetry.tracing import open_tracing
from server.traffic.bounds import Bounds
from server.traffic.traffic import Traffic
from tests.fakes import WAIT_S
from tests.serving import MODEL, ZOO

LONG = "The weather is nice today, and it will be nice tomorrow as well, if the wind does not turn. " * 3


class Replicas:
    """A deployment's handle, as far as an entry uses it. `dying`: so many calls are lost, from now on."""

    def __init__(self, models: Models) -> None:
        self.models, self.dying, self.full = models, 0, False
        self.left: asyncio.Future[None] | None = None
        """The end of a stream that was cancelled."""

    def options(self, method_name: str, stream: bool, multiplexed_model_id: str) -> Any:
        return type("Method", (), {"remote": self._stream if stream else self._one})

    def _one(self, asked: Asked) -> asyncio.Task[Any]:
        async def answer() -> Any:
            self._perhaps_die()
            return pickle.loads(pickle.dumps(await self.models.answer(pickle.loads(pickle.dumps(asked)))))

        return asyncio.ensure_future(answer())

    def _stream(self, asked: Asked) -> Any:
        answers = self.models.answers(asked)

        class Responses:
            async def __aiter__(self) -> AsyncIterator[Any]:
                replicas._perhaps_die()
                async for answer in answers:
                    yield pickle.loads(pickle.dumps(answer))
                    replicas._perhaps_die()

            def cancel(self) -> None:
                replicas.left = asyncio.ensure_future(answers.aclose())

        replicas = self
        return Responses()

    def _perhaps_die(self) -> None:
        if self.full:
            raise BackPressureError(num_queued_requests=9, max_queued_requests=8)
        if self.dying:
            self.dying -= 1
            raise RayActorError()


@asynccontextmanager
async def entry(*packages: Path, pivots: bool = False) -> AsyncIterator[tuple[AsyncClient, Replicas]]:
    settings = Group(name="en-pt", packages=packages or (ZOO,)).server_settings()
    loaded = await Models.open(settings, open_packages(settings), {})
    replicas = Replicas(loaded)
    calls = ObservedCalls(CallMetrics(CollectorRegistry()), open_tracing(settings, ""), CallLog(settings))
    traffic = Traffic.of(settings, Bounds.within(settings, None))
    listening = grpc.aio.server(interceptors=[RpcInterceptor(SERVICES, traffic, calls)])
    Forwarding(Catalog([Route(model, replicas, False, 8) for model in loaded.facts]), pivots).register(listening)
    port = listening.add_insecure_port("127.0.0.1:0")
    await listening.start()
    try:
        async with AsyncClient(f"127.0.0.1:{port}") as client:
            yield client, replicas
    finally:
        await listening.stop(None)
        await loaded.close()


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    async def say(*_: object) -> None:
        """There is nobody who keeps it."""

    monkeypatch.setattr(models, "announce", say)
    monkeypatch.setattr(models, "withdraw", say)
    monkeypatch.setattr(forwarding, "PAUSE_S", 0.001)


async def test_documents_go_by_way_of_a_third_language_as_texts_do() -> None:
    async with entry(ZOO, ZOO.parent / "pt-en", pivots=True) as (client, _):
        text = await client.translate("Good morning.", source_language="en", target_language="en", pivot=True)
        pieces = client.translate_document(
            b"Good morning.", format="txt", source_language="en", target_language="en", pivot=True
        )
        [*_, done] = [piece async for piece in pieces]
        assert isinstance(done, TranslatedDocument)
        assert (done.document.decode(), done.model) == (text.text, "pt-en")


async def test_every_method_is_answered_as_by_a_server() -> None:
    async with entry() as (client, _):
        [model] = await client.models()
        assert (model.name, model.workers, (await client.model()).name) == ("en-pt", 1, "en-pt")
        translation = await client.translate("Good morning.", with_tokens=True)
        assert translation.text == "Bom dia."
        assert translation.timings.total_s > 0
        # Hundreds of steps, so that what is found does not all wait for the first pieces to be sent.
        pieces = [event async for event in client.stream_translate(LONG, min_new_tokens=300)]
        text = "".join(piece.text for piece in pieces if isinstance(piece, TextDelta))
        assert len(pieces) > 4 and text == (await client.translate(LONG, min_new_tokens=300)).text
        [vector] = await client.encode(["Good morning."])
        [streamed] = [vector async for vector in client.stream_encode(["Good morning."])]
        assert streamed.values == vector.values
        assert (await client.score("Good morning.", ["Bom dia."])).targets[0].log_prob < 0
        with pytest.raises(InvalidArgument, match='target_language_code is "de"') as refused:
            await client.translate("Good morning.", target_language="de")
        assert refused.value.reason == "LANGUAGE_NOT_SUPPORTED"
        with pytest.raises(InvalidArgument) as refused:
            await client.translate("Good morning.", num_beams=99)
        assert (refused.value.reason, refused.value.violations[0].field) == (
            "OPTION_OUT_OF_RANGE",
            "decoding.num_beams",
        )


async def test_a_replica_that_dies_is_noticed_by_nobody_unless_the_text_is_the_cause() -> None:
    async with entry() as (client, replicas):
        replicas.dying = ATTEMPTS - 1
        assert (await client.translate("Good morning.")).text == "Bom dia."
        replicas.dying = 1
        assert [event async for event in client.stream_translate("Good morning.")][-1].text == "Bom dia."
        replicas.dying = ATTEMPTS
        with pytest.raises(Internal) as failed:
            await client.translate("Good morning.")
        assert failed.value.reason == "ENGINE_FAILED"


async def test_no_room_at_any_replica_is_overload_with_a_delay() -> None:
    async with entry() as (client, replicas):
        replicas.full = True
        with pytest.raises(Unavailable) as refused:
            await client.translate("Good morning.", timeout_s=0.9)  # before it may come back
        assert (refused.value.reason, refused.value.retry_delay_s) == ("OVERLOADED", 1.0)


async def test_who_leaves_frees_the_rows() -> None:
    async with entry() as (client, replicas):
        events = client.stream_translate(LONG)
        await anext(events)
        assert replicas.models.running == 1
        await events.aclose()
        async with asyncio.timeout(WAIT_S):
            while replicas.models.running:
                await asyncio.sleep(0.01)
        assert (await client.translate("Good morning.")).text == "Bom dia."


class RollingOut:
    """A deployment's handle of which former replicas answer first; one of them dies."""

    def __init__(self, former: Described, new: Described) -> None:
        self.described: list[Described | Exception] = [former, RayActorError(), former, new]
        self.describe = self

    def remote(self) -> asyncio.Future[Described]:
        answer: asyncio.Future[Described] = asyncio.get_running_loop().create_future()
        said = self.described.pop(0)
        if isinstance(said, Exception):
            answer.set_exception(said)
        else:
            answer.set_result(said)
        return answer


GROUP = Group(name="en-pt", packages=(ZOO,), settings={"max_rows": 8})
"""As it was deployed."""
BEFORE = GROUP.model_copy(update={"settings": {"max_rows": 64}})


@pytest.mark.parametrize(
    ("group", "former", "new"),
    [
        (GROUP, replace(MODEL, package_sha256="0" * 64), replace(MODEL, package_sha256="1" * 64)),
        (BEFORE, replace(MODEL, rows=64), replace(MODEL, rows=8)),
    ],
    ids=["another package", "other settings"],
)
async def test_an_entry_tells_what_was_deployed_once_a_replica_has_it(
    group: Group, former: ServedModel, new: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "LOOK_S", 0.001)
    handle: Any = RollingOut(Described(group, [former]), Described(GROUP, [new]))
    found = Routes([Deployed(GROUP, handle, [new.package_sha256])])
    await found.open()
    assert found.catalog.find("").model == former
    await found.settle()
    assert [route.model for route in found.catalog] == [new]
    await found.settle()
    assert not handle.described


@pytest.mark.parametrize(("taken", "flag"), [("port", "--port"), ("metrics_port", "--metrics-port")])
async def test_a_port_that_is_in_use_is_told_with_its_node_and_the_log_is_as_asked(
    taken: str, flag: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ray.util.get_node_ip_address", lambda: "10.0.0.3")
    monkeypatch.delattr(server.EntryServer, "__del__")  # which Ray Serve awaits
    configured = list[Settings]()
    monkeypatch.setattr("server.telemetry.logs.configure", configured.append)
    with socket.create_server(("127.0.0.1", 0)) as used:
        ports: dict[str, int] = {"port": free_port(), "metrics_port": 0, taken: used.getsockname()[1]}
        entry = Entry.model_validate({**ports, "settings": {"log_level": "error", "memory_mb": 10**9}})
        made: Any = server.EntryServer.__new__(server.EntryServer)
        why = f"cannot listen on 127.0.0.1:{ports[taken]}: Address already in use.*{flag}"
        told = f"on node 10.0.0.3: {why}.*`entry`; where it is free by now, deploy again with another `revision`"
        with pytest.raises(ConfigError, match=told):
            await made.__init__(entry, [], [], [])
    assert [one.log_level for one in configured] == ["error"]
    assert f"memory_mb is {10**9}, and the machine or container has " in caplog.text


@pytest.mark.parametrize("canary_health", [True, False])
async def test_a_replica_whose_known_answers_are_others_is_unhealthy_where_asked(
    canary_health: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray Serve asks before the first call, and makes another replica of one that raises."""

    def damaged(*arguments: Any) -> list[Any]:
        known = [one for one in known_answers(*arguments) if isinstance(one, KnownTranslation)]
        return [replace(one, probe=one.probe.model_copy(update={"score": -99.0})) for one in known]

    monkeypatch.setattr("server.loaded.known_answers", damaged)
    monkeypatch.delattr(Replica, "__del__")  # which Ray Serve awaits
    settings = Group(name="en-pt", packages=(ZOO,), settings={"canary_health": canary_health}).server_settings()
    loaded = await Models.open(settings, open_packages(settings), {})
    replica = Replica.__new__(Replica)
    replica._open, replica._node = [loaded], "10.0.0.3"
    try:
        if canary_health:
            with pytest.raises(RuntimeError, match=r"probes of en-pt have other answers on 10\.0\.0\.3"):
                await replica.check_health()
        else:
            await replica.check_health()
    finally:
        await loaded.close()


@pytest.mark.parametrize(("loaded", "settings"), [(None, {}), (2, {}), (None, {"memory_mb": 10**9})])
async def test_a_replica_that_counts_on_more_memory_than_there_is_says_so(
    loaded: int | None,
    settings: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of packages that take turns it is all that are loaded at a time which need it."""
    monkeypatch.setattr("server.telemetry.logs.configure", lambda settings: None)
    monkeypatch.setattr(replica, "packages_of", lambda *_: [])
    kind = replica.shelf(1)  # which loads nothing yet
    monkeypatch.delattr(Replica, "__del__")  # which Ray Serve awaits
    memory = None if settings else 10**9
    group = Group(name="en-pt", packages=(ZOO,), loaded=loaded, memory_mb=memory, settings=settings)
    made: Any = kind.__new__(kind)
    await made.__init__(group, [], "")
    assert f"memory_mb is {10**9}, and the machine or container has " in caplog.text
