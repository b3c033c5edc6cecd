"""The application of deploy/ray beside a plain server: equal answers, and no call that is lost when processes die."""

import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from bench.packages.versions import take
from bench.process import free_port, serving
from bench.ray.findings import Findings
from bench.ray.nodes import RAY, ROOT, Node, Nodes
from dragoman.bulk.engine import package_hashes
from dragoman.client import Client
from dragoman.errors import DragomanError
from dragoman.quickstart import HOST, is_serving

CONFIG = ROOT / "deploy" / "ray" / "dragoman.yaml"
CALLERS = 32
DEADLINE_S = 60.0
START_S = 300.0
CALLS = 300
"""One after another, to see what each takes."""
SHOWN = 2000
"""Characters of what a program complains."""
BEFORE_S, AFTER_S = 3.0, 20.0
"""How long callers go on before something dies, and then."""
Answer = tuple[object, ...]


def answer(client: Client, text: str) -> Answer:
    """Text, end and tokens."""
    translation = client.translate(text, target_language="pt", with_tokens=True, timeout_s=DEADLINE_S)
    [hypothesis] = translation.hypotheses
    return hypothesis.text, hypothesis.finish_reason, tuple(token.id for token in hypothesis.target_tokens)


def deploy(
    folder: Path, nodes: Nodes, groups: Sequence[Mapping[str, Any]], ports: tuple[int, int] | None = None
) -> tuple[str, int]:
    """The application with these groups, from a file, as it is deployed. Gives where clients find it, and Prometheus.

    The values of a group go before those of the first in deploy/ray/dragoman.yaml. ports: of both; None: free ones
    """
    config = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    [application] = config["applications"]
    [group] = application["args"]["groups"]
    port, http_port = ports or (free_port(), free_port())
    config["http_options"]["port"] = http_port
    application["args"]["entry"] |= {"port": port, "metrics_port": 0, "num_cpus": 0}
    application["args"]["groups"] = [{**group, **one} for one in groups]
    file = folder / "dragoman.yaml"
    file.write_text(yaml.safe_dump(config))
    command = [RAY.with_name("serve"), "run", f"--address={nodes.address}", "--non-blocking", file]
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"serve run ended with {done.returncode}: {done.stderr[-SHOWN:]}")
    deadline = time.monotonic() + START_S
    while not is_serving(port):
        if time.monotonic() > deadline:
            raise RuntimeError(f"the application was not serving within {START_S:.0f} s")
        time.sleep(0.1)
    return f"{HOST}:{port}", http_port


class Answers:
    """Of all sentences, as a plain server gives them."""

    def __init__(self, package: Path, sentences: Sequence[str], findings: Findings) -> None:
        self.package, self.sentences, self.findings = package, sentences, findings
        self.expected: list[Answer] = []

    def of_a_server(self) -> None:
        """Asks one."""
        with serving("server", ["--package", str(self.package)]) as server:
            self.time_calls("a server", server.target)
            self.compare("a server", server.target)
            self.findings.tell(f"a server: {server.rss_mb():.0f} MB")

    def texts(self) -> str:
        """As bulk writes them: a line for each."""
        return "".join(f"{str(text).replace(chr(10), ' ')}\n" for text, *_ in self.expected)

    def compare(self, who: str, target: str) -> None:
        """Asks for all, and compares them with the first."""
        began = time.perf_counter()
        with Client(target, wait_for_ready=True) as client, ThreadPoolExecutor(CALLERS) as callers:
            answers = list(callers.map(lambda text: answer(client, text), self.sentences))
        rate = len(answers) / (time.perf_counter() - began)
        self.expected = self.expected or answers
        different = sum(a != b for a, b in zip(answers, self.expected, strict=True))
        told = f"{who}: {len(answers)} sentences, {rate:.1f} a second, {different} differ"
        self.findings.tell(told, not different)

    def time_calls(self, who: str, target: str) -> None:
        """What a call takes beside its work in the engine."""
        with Client(target) as client:
            times = []
            for text in self.sentences[:CALLS]:
                began = time.perf_counter()
                translation = client.translate(text, target_language="pt", max_new_tokens=1)
                times.append(time.perf_counter() - began - translation.timings.total_s)
        median = sorted(times)[len(times) // 2]
        self.findings.tell(f"{who}: a call takes {median * 1000:.2f} ms beside its decoding (p50 of {len(times)})")


class Application:
    """With two replicas."""

    def __init__(self, folder: Path, nodes: Nodes, answers: Answers) -> None:
        self._folder, self._nodes, self._answers = folder, nodes, answers
        self._tell = answers.findings.tell

    def run(self) -> None:
        """All that is to be found out."""
        began = time.perf_counter()
        target, http_port = deploy(self._folder, self._nodes, self._groups(0))
        self._tell(f"Ray Serve: serving after {time.perf_counter() - began:.1f} s")
        self._answers.time_calls("Ray Serve", target)
        self._answers.compare("Ray Serve", target)
        memory = sum(node.memory_mb() for node in self._all)
        self._tell(f"Ray Serve: {memory:.0f} MB in all processes, without what they share")
        ports = int(target.rpartition(":")[2]), http_port
        self._under_load("a new version is rolled out", target, lambda: self._roll_out(target, ports))
        self._under_load("a replica is killed", target, lambda: _kill(self._all, "dragoman:en-pt"))
        self._under_load("the entry is killed", target, lambda: _kill(self._all, "dragoman:entry"))
        self._under_load("a node is killed", target, self._kill_node)

    @property
    def _all(self) -> list[Node]:
        return [self._nodes.head, *self._nodes.workers]

    def _groups(self, version: int) -> list[dict[str, Any]]:
        """One, of a version of the package that has a folder of its own."""
        folder = take(self._answers.package, self._folder / "served", version)
        return [{"packages": [str(folder)], "min_replicas": 2, "max_replicas": 2}]

    def _roll_out(self, target: str, ports: tuple[int, int]) -> None:
        """The application is deployed again, with another version of the package that has the same answers."""
        began = time.monotonic()
        groups = self._groups(1)
        deploy(self._folder, self._nodes, groups, ports)
        [wanted] = package_hashes([Path(groups[0]["packages"][0])])
        with Client(target, wait_for_ready=True) as client:
            while (found := client.model().package_sha256) != wanted and time.monotonic() - began < START_S:
                time.sleep(0.5)
        self._tell(f"a new version answers after {time.monotonic() - began:.0f} s", found == wanted)

    def _kill_node(self) -> None:
        """With a replica. Another one joins."""
        dying = random.choice(self._nodes.workers)
        dying.kill()
        self._nodes.workers.remove(dying)
        self._nodes.workers.append(self._nodes.add())

    def _under_load(self, what: str, target: str, disturb: Callable[[], object]) -> None:
        """Callers go on until it is over."""
        ends, lock, over = Counter[str](), threading.Lock(), threading.Event()

        def call_on(seed: int) -> None:
            draw = random.Random(seed)
            while not over.is_set():
                index = draw.randrange(len(self._answers.sentences))
                try:
                    right = answer(client, self._answers.sentences[index]) == self._answers.expected[index]
                    end = "right" if right else "wrong"
                except DragomanError as error:
                    end = f"failed: {error.reason or error.code.name}"
                with lock:
                    ends[end] += 1

        with Client(target, wait_for_ready=True) as client, ThreadPoolExecutor(CALLERS) as callers:
            under_way = [callers.submit(call_on, seed) for seed in range(CALLERS)]
            time.sleep(BEFORE_S)
            disturb()
            time.sleep(AFTER_S)
            over.set()
            for one in under_way:
                one.result()
        told = ", ".join(f"{count} {end}" for end, count in ends.most_common())
        self._tell(f"{what} under load: {told}", set(ends) == {"right"})


def _kill(nodes: Sequence[Node], name: str) -> None:
    """A process of a deployment."""
    random.choice([process for node in nodes for process in node.of(name)]).kill()
