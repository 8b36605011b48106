"""Executions on a server: accepted, followed, cancelled, killed and gone on with."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.cli import PROJECT_ROOT, Home
from tests.e2e.scenes import Scene, book, chain, running, task
from tests.e2e.serving import Server, serving

PAGES = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: pages, path: guide/pages}
workload: {base_url: "http://127.0.0.1:8082", page_size: 2}
workflow:
  - step: start
    tool:
      - {name: begin, kind: noop, set: {iter.page: 1, iter.seen: []}}
      - name: fetch
        kind: http
        url: "{{ base_url }}/api/executions/{{ execution_id }}/events"
        params: {page: "{{ iter.page }}", page_size: "{{ page_size }}"}
        spec:
          policy:
            rules:
              - {when: "{{ output.error.retryable }}", then: {do: retry, attempts: 3, delay: 0.5}}
              - when: "{{ output.status == 'ok' and output.data.data.pagination.has_next }}"
                then:
                  do: jump
                  to: fetch
                  set: {iter.seen: "{{ iter.seen + output.data.data.events }}", iter.page: "{{ iter.page + 1 }}"}
              - when: "{{ output.status == 'ok' }}"
                then: {do: continue, set: {iter.seen: "{{ iter.seen + output.data.data.events }}"}}
      - name: count
        kind: python
        input: {names: "{{ iter.seen | map(attribute='event_type') | list }}", pages: "{{ iter.page }}"}
        code: "result = {'pages': pages, 'first': names[0], 'events': len(names)}"
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def scene(home: Home, tmp_path: Path) -> Scene:
    place = tmp_path / "scene"
    place.mkdir()
    return Scene(home, place)


def at_gate(scene: Scene, server: Server, path: str, **payload: Any) -> str:
    """An execution whose step has reached the gate."""
    execution_id = server.start(path, **payload)
    while not scene.reached.exists():
        assert server.process.poll() is None
        select.select([], [], [], 0.001)
    return execution_id


def test_from_the_catalog_to_the_result(home: Home) -> None:
    with serving(home) as server:
        registered = server.register((PROJECT_ROOT / "examples/01_hello.yaml").read_text())
        execution_id = server.start(registered["path"])
        events = list(server.follow(execution_id))
        assert [event["stream_version"] for event in events] == list(range(1, len(events) + 1))
        assert events[-1]["event_type"] == "playbook.completed"
        assert list(server.follow(execution_id, 3)) == events[3:]
        status = server.get(f"/executions/{execution_id}/status")
        assert (status["status"], status["completed"]) == ("COMPLETED", True)
        stored = server.get(f"/executions/{execution_id}/events")["events"]
        assert [event["event_id"] for event in stored] == [event["event_id"] for event in events]
        result = server.get(f"/result/{execution_id}")["value"]
        batch = server.post("/execute/batch", {"items": [{"path": registered["path"]}, {"path": "nope"}]})
        assert [one["error"] and one["error"]["status"] for one in batch["items"]] == [None, 404]
        server.ended(batch["items"][0]["execution_id"])
        assert server.stop() == 0
    assert home.json("status", execution_id)["result"] == result
    assert home.run("verify", "--all").code == 0


def test_a_playbook_pages_through_its_own_log(home: Home) -> None:
    """The example of the language reference, 5.7."""
    with serving(home) as server:
        server.register(PAGES)
        execution_id = server.start("guide/pages", base_url=server.url)
        assert server.ended(execution_id) == "playbook.completed"
        value = server.get(f"/result/{execution_id}/start")["value"]
    counted = value["results"]["count"] if "results" in value else value
    assert counted == {"pages": 2, "first": "playbook.initialized", "events": 3}


WHO_AM_I = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: who, path: who}
workload: {from_default: "{{ catalog_id }} at {{ server_url }}"}
workflow:
  - step: ask
    tool: {kind: http, url: "{{ server_url }}/api/catalog/{{ catalog_id }}"}
    set: {ctx.by_the_engine: "{{ catalog_id }} at {{ server_url }}"}
    next: {arcs: [{step: tell}]}
  - step: tell
    tool: {kind: noop, result: {path: "{{ ask.data.path }}", said: ["{{ from_default }}", "{{ ctx.by_the_engine }}"]}}
"""


def test_a_playbook_knows_what_it_is_and_where_it_runs(home: Home) -> None:
    with serving(home) as server:
        entry = server.register(WHO_AM_I)
        execution_id = server.start("who")
        assert server.ended(execution_id) == "playbook.completed"
        value = server.get(f"/result/{execution_id}/tell")["value"]
        assert value == {"path": "who", "said": [f"{entry['catalog_id']} at {server.url}"] * 2}


def test_a_killed_server_goes_on_when_it_is_started_again(scene: Scene) -> None:
    text = chain(scene).read_text()
    with serving(scene.home) as server:
        server.register(text)
        execution_id = at_gate(scene, server, "chain", stop="c")
        server.process.kill()
        server.process.wait()
    scene.open_gate()
    with serving(scene.home) as server:
        assert server.ended(execution_id) == "playbook.completed"
    assert scene.effects == {"a": 1, "b": 1, "c": 2, "d": 1}
    assert scene.home.run("verify", "--all").code == 0


def test_whoever_resumes_beside_a_server_waits_for_it(scene: Scene) -> None:
    text = chain(scene).read_text()
    with serving(scene.home) as server:
        server.register(text)
        execution_id = at_gate(scene, server, "chain", stop="b")
        with running(scene.home, "resume", execution_id, "--json") as beside:
            assert beside.stderr is not None
            assert b"waiting for it" in beside.stderr.readline()
            opened = threading.Thread(target=lambda: os.close(os.open(scene.gate, os.O_WRONLY)))
            opened.start()
            assert server.ended(execution_id) == "playbook.completed"
            assert beside.wait(30) == 0
            opened.join()
    assert scene.effects == {"a": 1, "b": 1, "c": 1, "d": 1}


def test_a_server_leaves_alone_what_a_local_run_works_on(scene: Scene) -> None:
    file = chain(scene)
    with running(scene.home, "run", file, "--set", "stop=b", "--json") as local:
        while not scene.reached.exists():
            assert local.poll() is None
            select.select([], [], [], 0.001)
        with serving(scene.home) as server:
            (execution,) = server.get("/executions", status="RUNNING")["executions"]
            os.close(os.open(scene.gate, os.O_WRONLY))
            assert server.ended(execution["execution_id"]) == "playbook.completed"
        assert local.wait(30) == 0
    assert scene.effects == {"a": 1, "b": 1, "c": 1, "d": 1}


def test_a_server_that_is_asked_to_end_lets_running_commands_finish(scene: Scene) -> None:
    text = chain(scene).read_text()
    with serving(scene.home) as server:
        server.register(text)
        execution_id = at_gate(scene, server, "chain", stop="b")
        server.process.terminate()
        with contextlib.suppress(httpx.TransportError):  # until it listens no more
            while True:
                httpx.get(f"{server.url}/health")
        opened = threading.Thread(target=lambda: os.close(os.open(scene.gate, os.O_WRONLY)))
        opened.start()
        assert server.process.wait(60) == 0
        opened.join()
    assert scene.effects == {"a": 1, "b": 1}
    assert scene.ended() == {"a", "b"}
    with serving(scene.home) as server:
        assert server.ended(execution_id) == "playbook.completed"
    assert scene.effects == {"a": 1, "b": 1, "c": 1, "d": 1}


def test_a_stream_ends_with_the_server(scene: Scene) -> None:
    text = chain(scene).read_text()
    with serving(scene.home) as server:
        server.register(text)
        execution_id = at_gate(scene, server, "chain", stop="a")
        following = server.follow(execution_id)
        assert next(following)["event_type"] == "playbook.initialized"
        server.process.terminate()
        assert [event["event_type"] for event in following][-1] == "command.issued"
        os.close(os.open(scene.gate, os.O_WRONLY))
        assert server.process.wait(60) == 0


def test_cancelling_reaches_the_called(scene: Scene) -> None:
    child = book("child", {"step": "wait", "tool": task("wait", scene)})
    calling = {"kind": "playbook", "path": "child", "input": {"stop": "wait"}}
    parent = book("parent", {"step": "call", "tool": calling})
    with serving(scene.home) as server:
        server.register(scene.write(child).read_text())
        server.register(scene.write(parent).read_text())
        execution_id = at_gate(scene, server, "parent")
        said = server.post(f"/executions/{execution_id}/cancel", {"reason": "enough"})
        assert said["status"] == "cancelled"
        assert len(said["cancelled_executions"]) == 2
        statuses = {one["path"]: one["status"] for one in server.get("/executions")["executions"]}
        assert statuses == {"parent": "CANCELLED", "child": "CANCELLED"}
        os.close(os.open(scene.gate, os.O_WRONLY))
        assert server.stop() == 0
    assert scene.home.run("verify", "--all").code == 0


def test_the_command_line_cancels_what_a_server_runs(scene: Scene) -> None:
    text = chain(scene).read_text()
    with serving(scene.home) as server:
        server.register(text)
        execution_id = at_gate(scene, server, "chain", stop="a")
        assert scene.home.json("cancel", execution_id)["status"] == "cancelled"
        assert server.ended(execution_id) == "playbook.cancelled"
        assert server.get(f"/executions/{execution_id}/status")["cancelled"] is True
        os.close(os.open(scene.gate, os.O_WRONLY))
        assert server.stop() == 0
    assert scene.effects == {"a": 1}
