"""What a cluster refuses is told: a port in use, and packages that are not on a node, or others than elsewhere."""

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import ray
from ray import serve

from bench.packages.versions import take
from bench.process import free_port
from bench.ray.application import START_S, begin_deployment, wait_until_serving
from bench.ray.bulk import start
from bench.ray.edges import ZOO
from bench.ray.findings import Findings
from bench.ray.nodes import Nodes
from dragoman.bulk.unfinished import SUFFIX
from dragoman.client import Client
from dragoman.quickstart import HOST

PACKAGE = ZOO / "en-pt-int8"
APPLICATION, GROUP = "dragoman", "en-pt-int8"
TEXT = "Good morning."


class Refusals:
    """Of an application, and of bulk."""

    def __init__(self, folder: Path, nodes: Nodes, findings: Findings) -> None:
        self._folder, self._nodes, self._tell = folder, nodes, findings.tell
        self._link = folder / "served"
        self._first = take(PACKAGE, self._link, 0)

    def run(self) -> None:
        """All that is to be found out."""
        ray.init(self._nodes.address, log_to_driver=False, logging_level="error")
        try:
            target = self._port_in_use()
            self._other_packages(target)
            self._bulk()
        finally:
            ray.shutdown()

    def _port_in_use(self) -> str:
        """Gives where clients find the application, once it can be had."""
        groups = [{"name": GROUP, "packages": [str(self._link)], "max_replicas": 1}]
        with socket.create_server((HOST, free_port())) as taken:
            port = taken.getsockname()[1]
            begin_deployment(self._folder, self._nodes, groups, (port, free_port()))
            self._wait_for("entry", f"cannot listen on {HOST}:{port}: Address already in use")
        wait_until_serving(port)
        self._tell("the port is free again: the entry serves")
        return f"{HOST}:{port}"

    def _other_packages(self, target: str) -> None:
        """A replica that begins when the folder of its node has another package, or none."""
        take(PACKAGE, self._link, 1)
        self._kill_replicas()
        self._wait_for(GROUP, f"on node {HOST}: {self._link} has SHA-256 ")
        self._link.unlink()
        self._wait_for(GROUP, f"on node {HOST}: {self._link} is not a package")
        os.symlink(self._first, self._link)
        with Client(target, wait_for_ready=True) as client:
            text = client.translate(TEXT, timeout_s=START_S).text
        self._tell(f'the package is there again: "{text}"', text == "Bom dia.")

    def _bulk(self) -> None:
        """It has the hashes when it has its folder; the engines look when they have begun."""
        serve.shutdown()
        source, target = self._folder / "few.txt", self._folder / "few.pt.txt"
        unfinished = target.with_name(f"{target.name}{SUFFIX}")
        source.write_text(f"{TEXT}\n")
        for number, told in ((2, "its packages have SHA-256 "), (None, "is no package, and has none")):
            run = start(source, target, self._link, "--ray", self._nodes.address, stderr=subprocess.PIPE)
            while not (unfinished / "job.json").exists():
                time.sleep(0.01)
            self._link.unlink() if number is None else take(PACKAGE, self._link, number)
            _, complained = run.communicate()
            self._found(f"bulk, exit code {run.returncode}", complained.decode(), f"on node {HOST}: ", told)
            shutil.rmtree(unfinished)
            self._link.unlink(missing_ok=True)
            os.symlink(self._first, self._link)
        code = start(source, target, self._link, "--ray", self._nodes.address).wait()
        self._tell("bulk with the package that was there first", code == 0 and target.read_text() == "Bom dia.\n")

    def _kill_replicas(self) -> None:
        for node in [self._nodes.head, *self._nodes.workers]:
            for process in node.of(f"{APPLICATION}:{GROUP}"):
                process.kill()

    def _wait_for(self, deployment: str, told: str) -> None:
        """Until Ray Serve says it of a deployment."""
        deadline, message = time.monotonic() + START_S, ""
        while told not in message and time.monotonic() < deadline:
            time.sleep(1)
            application = serve.status().applications.get(APPLICATION)
            found = None if application is None else application.deployments.get(deployment)
            message = "" if found is None else found.message
        self._found(f"status of {deployment}", message, told)

    def _found(self, what: str, message: str, *wanted: str) -> None:
        line = next((line for line in message.splitlines() if all(one in line for one in wanted)), message)
        self._tell(f"{what}: {line.strip()}", all(one in message for one in wanted))
