"""The server as its operator sees it: starting, stopping, tokens, tenants, secrets."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cli import Home
from tests.e2e.detached import PATIENCE, Client, detached, gone, token
from tests.e2e.scenes import Scene, chain

SECRET = "plum-tree-in-winter-77"
HELLO: dict[str, Any] = {
    "apiVersion": "noetl.io/v2",
    "kind": "Playbook",
    "metadata": {"name": "hello", "path": "guide/hello"},
    "workload": {"who": "world"},
    "workflow": [
        {"step": "start", "tool": {"kind": "python", "input": {"w": "{{ who }}"}, "code": "result = {'w': w}"}}
    ],
}
LEAKY: dict[str, Any] = {
    "apiVersion": "noetl.io/v2",
    "kind": "Playbook",
    "metadata": {"name": "leaky", "path": "guide/leaky"},
    "keychain": [{"name": "crm", "kind": "credential", "credential": "crm"}],
    "workflow": [
        {
            "step": "start",
            "tool": {
                "kind": "python",
                "input": {"token": "{{ keychain.crm.token }}"},
                "code": "print(token)\nraise ValueError('refused ' + token)",
            },
        }
    ],
}


def registered(client: Client, document: dict[str, Any] = HELLO) -> dict[str, Any]:
    answer = client("POST", "/api/catalog/register", {"content": json.dumps(document)})
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.document
    return found


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that another program listens on."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


class TestLife:
    def test_it_is_started_looked_at_and_stopped(self, new_home: Home) -> None:
        with detached(new_home) as client:
            record = json.loads((new_home.path / "server.json").read_text())
            assert new_home.path.stat().st_mode & 0o077 == 0
            assert client("GET", "/api/health").document["status"] == "ok"
            assert client("GET", "/health").status == 200
            said = new_home.json("server", "status")
            assert (said["status"], said["url"], said["pid"]) == ("running", client.url, record["pid"])
            assert new_home.json("server", "stop") == {"stopped": True, "pid": record["pid"]}
            gone(record["pid"])
        assert not (new_home.path / "server.json").exists()
        status = new_home.run("server", "status", "--json")
        assert (status.code, status.document) == (3, {"status": "stopped"})
        assert new_home.json("server", "stop") == {"stopped": False, "pid": None}

    def test_a_second_one_is_told_where_the_first_one_is(self, new_home: Home) -> None:
        with detached(new_home) as client:
            for options in (["start", "--port", "0"], ["start", "--port", "0", "--detach"], ["--port", "0"]):
                refused = new_home.run("server", *options)
                assert refused.code == 2
                assert f"has a server already, at {client.url}" in refused.stderr
                assert "noetl server stop" in refused.stderr
            assert client("GET", "/api/health").status == 200

    def test_one_that_was_killed_leaves_nothing_in_the_way(self, new_home: Home) -> None:
        with detached(new_home) as client:
            pid = json.loads((new_home.path / "server.json").read_text())["pid"]
            os.kill(pid, signal.SIGKILL)
            gone(pid)
            assert (new_home.path / "server.json").exists(), "nobody was there to remove it"
            assert new_home.run("server", "status").code == 3
            assert new_home.json("server", "stop") == {"stopped": False, "pid": None}
            with detached(new_home) as again:
                assert again("GET", "/api/health").status == 200
                assert new_home.json("server", "status")["url"] == again.url != client.url

    def test_a_port_that_is_taken_is_said(self, new_home: Home, taken: int) -> None:
        for options in ([], ["--detach"]):
            refused = new_home.run("server", "start", "--port", str(taken), *options)
            assert refused.code == 3
            assert f"cannot listen on 127.0.0.1:{taken}" in refused.stderr
            assert "choose another --port" in refused.stderr
        assert not (new_home.path / "server.json").exists()

    def test_a_foreground_server_says_where_it_is_and_leaves_with_0(self, new_home: Home) -> None:
        process = new_home.start("server", "--port", "0", "--json")
        try:
            assert process.stdout is not None
            said = json.loads(process.stdout.readline())
            assert Client(said["url"])("GET", "/api/health").status == 200
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
            process.communicate()

    def test_stopping_lets_the_step_at_work_finish(self, scene: Scene) -> None:
        home = scene.home
        with detached(home) as client:
            started = self.held_at(scene, client, "b")
            stopping = home.start("server", "stop", "--json")
            self.refuses(client)
            assert stopping.poll() is None, "it waits for the step"
            scene.gate.write_text("go on")
            said, _ = stopping.communicate(timeout=PATIENCE)
            assert (stopping.returncode, json.loads(said)["stopped"]) == (0, True)
        assert {"a", "b"} <= scene.ended()
        scene.open_gate()
        with detached(home) as client:
            assert client.ended(started)["status"] == "COMPLETED"
        assert scene.effects == {"a": 1, "b": 1, "c": 1, "d": 1}

    def held_at(self, scene: Scene, client: Client, step: str) -> str:
        """An execution of the chain that stands at the gate."""
        content = chain(scene).read_text()
        assert client("POST", "/api/catalog/register", {"content": content}).status == 200
        answer = client("POST", "/api/execute", {"path": "chain", "payload": {"stop": step}})
        end = time.monotonic() + PATIENCE
        while not scene.reached.exists():
            assert time.monotonic() < end
            select.select([], [], [], 0.01)
        return str(answer.document["execution_id"])

    def refuses(self, client: Client) -> None:
        """Wait until nobody new is let in."""
        end = time.monotonic() + PATIENCE
        with contextlib.suppress(OSError):
            while client("GET", "/api/health").status == 200:
                assert time.monotonic() < end
                select.select([], [], [], 0.01)

    def test_a_second_signal_ends_it_at_once_and_the_next_one_goes_on(self, scene: Scene) -> None:
        home = scene.home
        with detached(home) as client:
            started = self.held_at(scene, client, "b")
            before = time.monotonic()
            assert home.json("server", "stop", "--now")["stopped"]
            assert time.monotonic() - before < PATIENCE, "it did not wait for the step at the gate"
        scene.open_gate()
        with detached(home) as client:
            assert client.ended(started)["status"] == "COMPLETED"
        assert set(scene.effects) == {"a", "b", "c", "d"}
        assert scene.effects["a"] == scene.effects["c"] == 1

    @pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.7"])
    def test_without_tokens_it_listens_to_this_machine_only(self, new_home: Home, host: str) -> None:
        refused = new_home.run("server", "--host", host, "--port", "0")
        assert refused.code == 2
        assert f"loopback address only, not on {host}" in refused.stderr
        assert "--auth token" in refused.stderr
        assert not new_home.path.exists(), "nothing was made"

    def test_a_setting_that_is_wrong_is_named(self, new_home: Home) -> None:
        refused = new_home.run("server", env={"NOETL_SERVER__AUTH": "maybe"})
        assert refused.code == 2
        assert "NOETL_SERVER__AUTH: server.auth: expected none or token, found 'maybe'" in refused.stderr
        refused = new_home.run("server", env={"NOETL_SERVER__PORT": "70000"})
        assert (refused.code, "70000 is not a port" in refused.stderr) == (2, True)


class TestTokens:
    def test_a_token_is_shown_once_and_kept_nowhere(self, new_home: Home) -> None:
        made = new_home.run("token", "create", "--name", "ci", "--role", "operator")
        assert made.code == 0
        text = made.stdout.strip()
        assert text.startswith("ntl_")
        assert text not in made.stderr
        assert text.encode() not in b"".join(file.read_bytes() for file in new_home.path.rglob("*") if file.is_file())
        listed = new_home.run("token", "list")
        assert "in force" in listed.stdout
        assert text not in listed.stdout + json.dumps(new_home.json("token", "list"))
        assert new_home.run("token", "create", "--name", "ci").code == 2

    @pytest.mark.parametrize("expires", ["0s", "soon", "200000d"])
    def test_a_life_that_makes_no_sense_is_refused(self, new_home: Home, expires: str) -> None:
        refused = new_home.run("token", "create", "--name", "ci", "--expires", expires)
        assert (refused.code, "--expires" in refused.stderr) == (2, True)

    def test_they_let_in_until_they_are_revoked(self, new_home: Home) -> None:
        text = token(new_home, "ci", "operator")
        with detached(new_home, "--auth", "token") as nobody:
            client = Client(nobody.url, text)
            assert nobody("GET", "/api/health").status == 200
            assert nobody("GET", "/api/executions").status == 401
            assert client("GET", "/api/executions").status == 200
            registered(client)
            refused = client("POST", "/api/credentials", {"name": "a", "type": "secret", "data": {"secret": "abcd"}})
            assert (refused.status, "needs the role admin" in refused.document["detail"]) == (403, True)
            assert new_home.json("token", "list")["tokens"][0]["last_used_on"] is not None
            new_home.json("token", "revoke", "ci")
            assert client("GET", "/api/executions").document["detail"] == "the token 'ci' was revoked"
        told = [event["event_type"] for event in new_home.json("events", "tenant/default")["events"]]
        assert told == ["token.created", "token.revoked"]
        assert new_home.run("verify", "--all").code == 0

    def test_a_tenant_sees_nothing_of_another(self, new_home: Home) -> None:
        tokens = {tenant: token(new_home, tenant, "admin", tenant=tenant) for tenant in ("acme", "globex")}
        with detached(new_home, "--auth", "token") as nobody:
            acme, globex = (Client(nobody.url, text) for text in tokens.values())
            entry = registered(acme)
            acme("POST", "/api/credentials", {"name": "crm", "type": "bearer", "data": {"token": SECRET}})
            started = acme("POST", "/api/execute", {"path": "guide/hello"}).document["execution_id"]
            assert acme.ended(started)["status"] == "COMPLETED"

            assert globex("GET", "/api/executions").document["executions"] == []
            assert globex("GET", "/api/credentials").document["credentials"] == []
            assert globex("POST", "/api/catalog/list", {}).document["entries"] == []
            for method, path, body in _reaching_for(started, entry["catalog_id"]):
                refused = globex(method, path, body)
                harmless = refused.status == 200 and "not_found" in refused.text
                assert refused.status == 404 or harmless, (method, path, refused)
                assert "world" not in refused.text
            assert acme("GET", f"/api/executions/{started}/status").document["status"] == "COMPLETED"


def _reaching_for(execution: str, catalog_id: str) -> list[tuple[str, str, Any]]:
    one = f"/api/executions/{execution}"
    return [
        ("GET", one, None),
        ("GET", f"{one}/status", None),
        ("GET", f"{one}/events", None),
        ("GET", f"{one}/cancellation-check", None),
        ("GET", f"{one}/stream", None),
        ("POST", f"{one}/cancel", {}),
        ("POST", f"{one}/finalize", {"status": "FAILED", "reason": "mine now"}),
        ("POST", f"{one}/analyze", {}),
        ("GET", f"/api/vars/{execution}", None),
        ("GET", f"/api/result/{execution}/start", None),
        ("GET", f"/api/replay/state?execution_id={execution}", None),
        ("GET", f"/api/catalog/{catalog_id}", None),
        ("GET", "/api/credentials/crm?include_data=true", None),
        ("GET", f"/api/keychain/{catalog_id}/crm", None),
        ("POST", "/api/execute", {"catalog_id": catalog_id}),
    ]


class TestSecrets:
    def test_a_planted_secret_is_nowhere(self, new_home: Home, tmp_path: Path) -> None:
        with detached(new_home) as client:
            body = {"name": "crm", "type": "bearer", "data": {"token": SECRET}}
            said = [client("POST", "/api/credentials", body)]
            registered(client, LEAKY)
            started = client("POST", "/api/execute", {"path": "guide/leaky"}).document["execution_id"]
            assert client.ended(started)["status"] == "FAILED"
            one = f"/api/executions/{started}"
            said += [client("GET", path) for path in (one, f"{one}/events", f"{one}/status", "/metrics")]
            said += [
                client("GET", path) for path in ("/api/credentials", "/api/credentials/crm", f"/api/vars/{started}")
            ]
            assert all(answer.status == 200 for answer in said), said
            assert client("GET", "/api/credentials/crm?include_data=true").document["data"] == {"token": SECRET}
            assert new_home.json("server", "stop")["stopped"]
        assert not [answer for answer in said if SECRET in answer.text]
        log = (new_home.path / "logs" / "server.log").read_text()
        assert started in log, "we look at the right file"
        for line in log.splitlines():
            assert {"time", "level", "logger", "message"} <= json.loads(line).keys()
        left = [file for file in new_home.path.rglob("*") if file.is_file() and SECRET.encode() in file.read_bytes()]
        assert left == []

    def test_a_credential_of_the_command_line_is_told_like_one_of_the_server(
        self, new_home: Home, tmp_path: Path
    ) -> None:
        given = tmp_path / "crm.yaml"
        given.write_text(f"token: {SECRET}\n")
        new_home.json("credential", "add", "crm", "--type", "bearer", "--file", given)
        with detached(new_home) as client:
            client("POST", "/api/credentials", {"name": "crm", "type": "bearer", "data": {"token": "another-one"}})
            assert client("DELETE", "/api/credentials/crm").status == 200
        events = new_home.json("events", "tenant/default")["events"]
        assert [(event["event_type"], event["aggregate_id"]) for event in events] == [
            ("credential.registered", "crm"),
            ("credential.registered", "crm"),
            ("credential.removed", "crm"),
        ]
        assert len({event["principal"] for event in events}) == 1
        assert SECRET not in json.dumps(events)

    def test_a_value_kept_for_an_entry_is_what_its_worker_gets(self, new_home: Home) -> None:
        document = {**LEAKY, "keychain": [{"name": "crm", "kind": "static", "map": {"token": "none"}}]}
        step = {"kind": "python", "input": {"token": "{{ keychain.crm.token }}"}, "code": "result = {'n': len(token)}"}
        document["workflow"] = [{"step": "start", "tool": step}]
        with detached(new_home) as client:
            place = f"/api/keychain/{registered(client, document)['catalog_id']}/crm"

            def lengths() -> int:
                started = client("POST", "/api/execute", {"path": "guide/leaky"}).document["execution_id"]
                assert client.ended(started)["status"] == "COMPLETED"
                found: int = client("GET", f"/api/result/{started}/start").document["value"]["n"]
                return found

            assert lengths() == len("none")
            assert client("POST", place, {"data": {"token": SECRET}}).status == 200
            assert lengths() == len(SECRET)
            assert client("DELETE", place).status == 200
            assert lengths() == len("none")


class TestInternalRoutes:
    SERVICE = "5e7ce" * 10

    def test_they_are_for_the_service_token_alone(self, new_home: Home) -> None:
        with detached(new_home, env={"NOETL_INTERNAL_API_TOKEN": self.SERVICE}) as client:
            registered(client)
            client.ended(client("POST", "/api/execute", {"path": "guide/hello"}).document["execution_id"])
            route = "/api/internal/outbox/pending-count"
            for wrong in (None, "", self.SERVICE[:-1], self.SERVICE + "0", "x" * 10_000):
                answer = Client(client.url, wrong)("GET", route)
                assert answer.status == 401, answer
                assert "service token" in answer.document["detail"]
            service = Client(client.url, self.SERVICE)
            assert service("GET", route).document["pending"] >= 0
            assert service("POST", "/api/internal/events/project").document["position"] > 0
            assert service("GET", route).document == {"pending": 0}
        for file in new_home.path.rglob("*"):
            assert not file.is_file() or self.SERVICE.encode() not in file.read_bytes(), file

    def test_one_that_can_be_guessed_is_refused_and_nothing_is_made(self, new_home: Home) -> None:
        refused = new_home.run("server", "start", "--port", "0", env={"NOETL_INTERNAL_API_TOKEN": "hello"})
        assert (refused.code, "openssl rand -hex 32" in refused.stderr) == (2, True)
        assert not new_home.path.exists()
