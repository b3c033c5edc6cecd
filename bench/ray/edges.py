"""What else a server promises, by the application: streams, callers who leave, overload, and fleets that change."""

import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from json import loads
from pathlib import Path
from typing import Any

import grpc
from prometheus_client.parser import text_string_to_metric_families

from bench.ray.application import answer, deploy
from bench.ray.findings import Findings
from bench.ray.nodes import ROOT, Nodes
from bench.sentences import distinct
from dragoman.client import Client
from dragoman.errors import DragomanError, InvalidArgument, from_rpc
from dragoman.quickstart import HOST
from dragoman.results.translation import TextDelta
from dragoman.v1.translation_pb2 import StreamTranslateRequest, TranslateRequest
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub

ZOO = ROOT / "models" / "zoo"
QUEUED = 16
"""Texts that may wait at a replica."""
AT_ONCE = 400
"""Calls, which are more than what may wait."""
SCALED_S = 600.0
"""How long it may take until the fleet is what it should be."""
DEADLINE_S, MANY_TOKENS = 0.5, 500
"""Of a call that is begun and cannot end in time: 500 steps take a second and more."""
NO_TIME_S = 0.05
"""Of a call that is refused at once: four sentences by four beams take several times as long."""
QUIET_S = 3.0
"""Without callers, before metrics are looked at."""
GROUPS: list[dict[str, Any]] = [
    {
        "name": "en-pt",
        "packages": [str(ZOO / "en-pt")],
        "settings": {"max_waiting": QUEUED, "max_contents": QUEUED, "max_rows": 4, "cache_mb": 0},
        "max_replicas": 2,
        "queue_s": 0.02,
        "upscale_delay_s": 2.0,
        "downscale_delay_s": 5.0,
    },
    {"name": "shelf", "packages": [str(ZOO / "pt-en"), str(ZOO / "en-pt-int8")], "loaded": 1, "max_replicas": 1},
]


class Edges:
    """Of an application with a group of one package, and one of two, of which one at a time is in memory."""

    def __init__(self, folder: Path, nodes: Nodes, findings: Findings) -> None:
        self._folder, self._nodes, self._tell = folder, nodes, findings.tell

    def run(self) -> None:
        """All that is to be found out."""
        target, self._http_port = deploy(self._folder, self._nodes, GROUPS)
        with Client(target, wait_for_ready=True) as client, grpc.insecure_channel(target) as channel:
            stub = TranslationServiceStub(channel)
            self._models(client)
            self._streams(client)
            self._leaving(stub)
            self._overload(stub)
            self._scaling(client)

    def _models(self, client: Client) -> None:
        names = [model.name for model in client.models()]
        self._tell(f"the models are {names}", names == ["en-pt", "pt-en", "en-pt-int8"])
        for _ in range(3):  # one after another is loaded, and ends the other
            there = client.translate("Good morning.", model="en-pt-int8").text
            back = client.translate("Bom dia.", target_language="en").text
        self._tell(f'of a shelf for one: "{there}", "{back}"', there == "Bom dia." and back.startswith("Good"))
        try:
            client.translate("Good morning.", target_language="de")
        except InvalidArgument as error:
            self._tell(f"refused: {error}")
        [vector] = client.encode(["Good morning."])
        self._tell(f"a vector has {len(vector.values)} numbers", len(vector.values) > 0)

    def _streams(self, client: Client) -> None:
        text = distinct(1)[0]
        events = client.stream_translate(text, target_language="pt")
        pieces = [event.text for event in events if isinstance(event, TextDelta)]
        whole = client.translate(text, target_language="pt").text
        self._tell(f"a stream of {len(pieces)} pieces is the whole text", "".join(pieces) == whole and len(pieces) > 2)

    def _leaving(self, stub: TranslationServiceStub) -> None:
        """By cancelling, and by a deadline."""
        before = self._metric("dragoman_cancellations_total")
        text = " ".join(distinct(4))
        long = StreamTranslateRequest(content=text, target_language_code="pt")
        long.decoding.min_new_tokens = MANY_TOKENS  # or it is over before a busy machine has told that nobody listens
        call = stub.StreamTranslate(long)
        next(call)
        call.cancel()
        time.sleep(QUIET_S)
        late = TranslateRequest(contents=["Good morning."], target_language_code="pt")
        late.decoding.min_new_tokens = MANY_TOKENS  # of so short a text nobody expects so many: it is begun
        ended = _end(stub, late, DEADLINE_S)
        time.sleep(QUIET_S)
        left = self._metric("dragoman_cancellations_total") - before
        rows = self._metric("dragoman_rows_live")
        told = f"{left:.0f} texts of callers who left were dropped (deadline: {ended}), {rows:.0f} rows are left"
        self._tell(told, left == 2 and not rows and ended.startswith("DEADLINE_EXCEEDED"))
        hopeless = TranslateRequest(contents=[text], target_language_code="pt")
        hopeless.decoding.num_beams = 4
        ended = _end(stub, hopeless, NO_TIME_S)
        self._tell(f"without the time it takes: {ended}", ended.startswith("UNAVAILABLE: the answer may take"))

    def _overload(self, stub: TranslationServiceStub) -> None:
        """Without a client that tries again."""
        ends, lock = Counter[str](), threading.Lock()

        def call(text: str) -> None:
            try:
                stub.Translate(TranslateRequest(contents=[text], target_language_code="pt"), timeout=60)
                end = "OK"
            except grpc.RpcError as error:
                end = f"{error.code().name}{' with a retry delay' if _retry_s(error) else ''}"
            with lock:
                ends[end] += 1

        with ThreadPoolExecutor(AT_ONCE) as callers:
            list(callers.map(call, distinct(AT_ONCE)))
        told = ", ".join(f"{count} {end}" for end, count in ends.most_common())
        self._tell(f"{AT_ONCE} calls at once: {told}", set(ends) == {"OK", "UNAVAILABLE with a retry delay"})

    def _scaling(self, client: Client) -> None:
        """Up under load, and down without, while somebody calls all the time."""
        texts, over, ends = distinct(500), threading.Event(), Counter[str]()
        self._wait_for_replicas(1)  # the overload may have made another one
        expected = {text: answer(client, text) for text in texts[:50]}

        def load() -> None:
            while not busy_over.is_set():
                for text in texts:
                    if busy_over.is_set():
                        break
                    with counted(ends):
                        answer(client, text)

        def trickle() -> None:
            while not over.is_set():
                for text, wanted in expected.items():
                    with counted(ends):
                        ends["right" if answer(client, text) == wanted else "wrong"] += 1
                    time.sleep(0.05)

        busy_over = threading.Event()
        with ThreadPoolExecutor(33) as callers:
            try:
                one = callers.submit(trickle)
                many = [callers.submit(load) for _ in range(24)]
                up_s = self._wait_for_replicas(2)
                busy_over.set()
                for caller in many:
                    caller.result()
                down_s = self._wait_for_replicas(1)
            finally:  # or who waits for the callers would wait for ever
                busy_over.set()
                over.set()
            one.result()
        told = ", ".join(f"{count} {end}" for end, count in ends.most_common())
        self._tell(
            f"two replicas after {up_s:.0f} s, and one again after {down_s:.0f} s: {told}", set(ends) == {"right"}
        )

    def _wait_for_replicas(self, count: int) -> float:
        """Of the first group, as Prometheus sees them. In how many seconds there are so many."""
        began = time.monotonic()
        while len([one for one in self._targets() if one["labels"]["deployment"] == "en-pt"]) != count:
            if time.monotonic() - began > SCALED_S:
                raise RuntimeError(f"there were not {count} replicas within {SCALED_S:.0f} s")
            time.sleep(0.5)
        return time.monotonic() - began

    def _targets(self) -> list[dict[str, Any]]:
        """Where the metrics are."""
        with urllib.request.urlopen(f"http://{HOST}:{self._http_port}/") as page:
            found: list[dict[str, Any]] = loads(page.read())
        return found

    def _metric(self, name: str) -> float:
        """The sum over all processes."""
        total = 0.0
        for one in self._targets():
            with urllib.request.urlopen(f"http://{one['targets'][0]}/metrics") as page:
                for family in text_string_to_metric_families(page.read().decode()):
                    total += sum(sample.value for sample in family.samples if sample.name == name)
        return total


@contextmanager
def counted(ends: Counter[str]) -> Iterator[None]:
    """Counts a call that fails."""
    try:
        yield
    except DragomanError as error:
        ends[f"failed: {error.reason or error.code.name}"] += 1


def _end(stub: TranslationServiceStub, request: TranslateRequest, timeout_s: float) -> str:
    """How a call ends that has so much time."""
    try:
        stub.Translate(request, timeout=timeout_s)
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}"
    return "OK"


def _retry_s(error: grpc.RpcError) -> bool:
    """Whether it says when to come again."""
    return from_rpc(error).retry_delay_s is not None
