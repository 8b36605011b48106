"""The manifests, followed without a cluster: every container is a process with just what its manifest gives it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from noetl.deploy.kubernetes import kubernetes_files
from noetl.deploy.secrets import kubernetes_secrets
from noetl.deploy.shape import METRICS_PORT, SERVER_PORT, Shape
from noetl.kernel.event import Json
from tests.services import nats, postgres
from tests.services.emulator import free_ports

postgres_server = postgres.postgres_server
database = postgres.postgres
nats_server = nats.nats_server
nats_url = nats.nats_url
GREETING = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: greet, path: tests/greet}
workflow:
  - step: greet
    tool: {kind: python, code: "result = {'text': 'hello'}"}
"""


class Node:
    """Runs the containers of the manifests; those of a pod share a home."""

    def __init__(self, root: Path, database: str, queue: str) -> None:
        store = {"payloads.url": f"file://{root}/payloads"}
        texts = kubernetes_files(Shape(projectors=1, workers=1, spark=0, settings=store))
        texts.pop("kustomization.yaml")
        self._objects = [one for text in texts.values() for one in yaml.safe_load_all(text)]
        self._settings = next(one["data"] for one in self._objects if one["kind"] == "ConfigMap")
        self._secret = yaml.safe_load(kubernetes_secrets(database, queue))["stringData"]
        self._root = root
        self.port = free_ports(1)[0]
        self.running: list[subprocess.Popen[bytes]] = []

    def pod(self, name: str) -> Json:
        found: Json = next(
            one["spec"]["template"]["spec"] for one in self._objects
            if one["metadata"]["name"].startswith(name) and "template" in one.get("spec", {})
        )  # fmt: skip
        return found

    def run(self, pod: Json, container: Json) -> subprocess.Popen[bytes]:
        """A container of a pod. What is one machine's each in a cluster is shared here: addresses, ports, its name."""
        home = self._root / f"home-of-{pod['containers'][0]['name']}"
        arguments = [str(free_ports(1)[0]) if text == str(METRICS_PORT) else text for text in container["args"]]
        arguments = [text.replace("host/1", "0/1") for text in arguments]
        environment = {**self._settings, **{one["name"]: self._value(one) for one in container["env"]}}
        environment = {key: self._moved(value) for key, value in environment.items()}
        environment |= {"NOETL_HOME": str(home), "HOME": str(self._root), "PATH": os.environ["PATH"]}
        log = (self._root / f"{container['name']}.log").open("ab")
        with log:
            return subprocess.Popen(
                [sys.executable, "-m", "noetl", *arguments], env=environment, cwd=self._root,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def start(self, name: str) -> None:
        """A pod: what must have succeeded before, and then its container."""
        pod = self.pod(name)
        for container in pod.get("initContainers", []):
            assert self.run(pod, container).wait(60) == 0, self.said(container["name"])
        self.running.append(self.run(pod, pod["containers"][0]))

    def finish(self, name: str) -> None:
        """A Job."""
        pod = self.pod(name)
        assert self.run(pod, pod["containers"][0]).wait(60) == 0, self.said("migrate")

    def said(self, name: str) -> str:
        return (self._root / f"{name}.log").read_text()

    def _value(self, one: Json) -> str:
        return str(one["value"] if "value" in one else self._secret[one["valueFrom"]["secretKeyRef"]["key"]])

    def _moved(self, value: str) -> str:
        return value.replace("noetl-server", "127.0.0.1").replace(str(SERVER_PORT), str(self.port))


@pytest.fixture
def node(tmp_path: Path, database: postgres.Database, nats_url: str) -> Iterator[Node]:
    node = Node(tmp_path, database.dsn, nats_url)
    yield node
    for process in node.running:
        process.kill()
        process.wait()


def eventually(condition: Callable[[], Any], otherwise: Callable[[], str]) -> Any:
    end = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < end, otherwise()
        time.sleep(0.1)
    return found


def test_what_the_manifests_start_runs_a_playbook(node: Node) -> None:
    node.finish("noetl-migrate")
    for name in ("noetl-server", "noetl-outbox", "noetl-projector", "noetl-worker"):
        node.start(name)
        if name == "noetl-server":
            eventually(lambda: _listens(node.port), lambda: node.said("server"))
    pod = node.pod("noetl-server")
    create = {**pod["containers"][0], "name": "user", "args": ["token", "create", "--name", "me", "--role", "operator"]}
    assert node.run(pod, create).wait(60) == 0, node.said("user")
    headers = {"Authorization": f"Bearer {node.said('user').split()[-1]}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{node.port}/api", headers=headers, timeout=30) as client:
        assert client.get("/executions", headers={"Authorization": ""}).status_code == 401
        client.post("/catalog/register", json={"content": GREETING}).raise_for_status()
        started = client.post("/execute", json={"path": "tests/greet", "payload": {}}).json()["execution_id"]
        ended = eventually(
            lambda: (found := client.get(f"/executions/{started}").json())["status"] == "COMPLETED" and found,
            lambda: node.said("worker"),
        )
    assert ended["status"] == "COMPLETED"
    assert all(process.poll() is None for process in node.running)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
