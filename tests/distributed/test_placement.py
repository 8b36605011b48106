"""Workers in places and pools, as processes: who runs what, what is waited for, and what people see of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.distributed.stack import Stack, stack
from tests.services.nats import NatsServer
from tests.services.postgres import Database, postgres, postgres_server

__all__ = ["postgres", "postgres_server"]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, postgres: Database) -> Iterator[Stack]:
    nats = NatsServer(tmp_path_factory.mktemp("nats")).start()
    try:
        with stack(tmp_path_factory.mktemp("stack"), postgres.dsn, nats.url) as found:
            yield found
    finally:
        nats.kill()


def step(name: str, following: str | None = None, **placement: Any) -> dict[str, Any]:
    code = f"print('this is {name}')\nresult = {{'step': '{name}'}}"
    arcs = {"next": {"arcs": [{"step": following}]}} if following else {}
    return {"step": name, "spec": {"placement": placement}, "tool": {"kind": "python", "code": code}, **arcs}


def document(name: str, *steps: dict[str, Any]) -> str:
    about = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": name, "path": f"tests/{name}"}}
    return yaml.safe_dump({**about, "workflow": list(steps)})


def test_places_and_labels_decide_who_runs_what(whole: Stack) -> None:
    whole.worker("a", env={"NOETL_PLACE__ZONE": "a", "NOETL_PLACE__NODE": "node-a"})
    whole.worker("b", "--labels", "gpu=1", env={"NOETL_PLACE__ZONE": "b", "NOETL_PLACE__NODE": "node-b"})
    near = step("start", "heavy", prefer_zone="a", max_distance="zone")
    whole.server.register(document("placed", near, step("heavy", labels={"gpu": 1})))
    execution_id, found = whole.run("tests/placed")
    assert (found["status"], found["result"]) == ("COMPLETED", {"step": "heavy"})
    claims = {one["node_name"]: one["meta"] for one in whole.events(execution_id, "command.claimed")}
    assert claims["start"]["locality"]["zone"] == "a"
    assert claims["start"]["placement"]["distance"] == "zone"
    assert claims["heavy"]["worker_locator"].startswith("noetl://tenant/default/org/default/region/local/zone/b/node/")
    topology = whole.home.json("topology", env=whole.environment)["regions"]["local"]
    assert {zone: list(nodes) for zone, nodes in topology.items()} == {"a": ["node-a"], "b": ["node-b"]}
    lines = whole.home.json("logs", execution_id, env=whole.environment)["lines"]
    assert [one["text"] for one in lines] == ["this is start", "this is heavy"]
    assert whole.verified(execution_id)


def test_a_pool_that_nobody_serves_is_waited_for_and_said(whole: Stack) -> None:
    whole.server.register(document("pooled", step("start")))
    asked = {"path": "tests/pooled", "execution_pool": "night"}
    execution_id = whole.server.post("/execute", asked)["execution_id"]
    said = "waiting for a worker of pool night; none is registered"
    assert whole.home.json("status", execution_id, env=whole.environment)["waiting_for"] == said
    assert whole.server.get(f"/executions/{execution_id}")["waiting_for"] == said
    whole.worker("n", "--pool", "night")
    assert whole.server.ended(execution_id) == "playbook.completed"
    assert "waiting_for" not in whole.home.json("status", execution_id, env=whole.environment)
