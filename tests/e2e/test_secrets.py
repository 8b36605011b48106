"""A planted secret appears nowhere: not in the log, the database, the output, an export or an error."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import web

from tests.services.http import serving
from tests.services.postgres import Database, postgres, postgres_server

__all__ = ["postgres", "postgres_server"]

SECRET = "PLANTED-s3cr3t-94/71"
PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: sec, path: sec}
keychain:
  - {name: api, kind: credential, credential: my_api}
workflow:
  - step: start
    tool:
      kind: python
      auth: my_api
      input: {token: "{{ keychain.api.token }}"}
      code: |
        import base64, os
        print("token is", token)
        assert os.environ["TOKEN"] == token
        result = {"seen": token, "size": len(token), "header": "Bearer " + token, "keys": {token: 1},
                  "basic": base64.b64encode(("me:" + token).encode()).decode()}
    set: {ctx.header: "{{ result.header }}"}
    next: {arcs: [{step: fail}]}
  - step: fail
    tool: {kind: python, input: {t: "{{ keychain.api.token }}"}, code: "raise ValueError('bad ' + t)"}
"""


def noetl(home: Path, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[bytes]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("NOETL_")}
    command = [sys.executable, "-m", "noetl", *arguments, "--home", str(home)]
    given = None if stdin is None else stdin.encode()
    return subprocess.run(command, env=plain, input=given, capture_output=True, check=False, cwd=home.parent)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    place = tmp_path / "home"
    stored = noetl(
        place, "credential", "add", "my_api", "--type", "bearer", "--stdin", stdin=f'{{"token": "{SECRET}"}}'
    )
    assert stored.returncode == 0, stored.stderr
    (tmp_path / "sec.yaml").write_text(PLAYBOOK, encoding="utf-8")
    return place


def test_a_planted_secret_appears_nowhere(home: Path) -> None:
    ran = noetl(home, "run", "sec.yaml", "--json")
    assert ran.returncode == 1
    shown = noetl(home, "run", "sec.yaml")
    listed = noetl(home, "list", "--json").stdout
    execution = listed.decode().split('"execution_id":"')[1].split('"')[0]
    told: list[tuple[str, ...]] = [
        ("events", execution, "--json"),
        ("export", execution),
        ("replay", execution, "--json"),
        ("result", execution, "start", "--json"),
        ("status", execution, "--json"),
        ("verify", "--all", "--json"),
    ]
    left = [ran.stdout, ran.stderr, shown.stdout, shown.stderr, listed]
    left += [noetl(home, *command).stdout for command in told]
    left += [path.read_bytes() for path in home.rglob("*") if path.is_file()]
    spelled = {SECRET.encode(), base64.b64encode(SECRET.encode()), base64.b64encode(f"me:{SECRET}".encode())}
    assert not [secret for secret in spelled for data in left if secret in data]
    assert any(b'"size":20' in data for data in left)  # the tool did see it


# --- Every way that a secret takes through a run ----------------------------------------------------------

CLIENT, TOKEN, BASIC, DATABASE = "PLANTED-client-s3cr3t", "PLANTED-oauth-t0ken", "PLANTED-b4sic-pass", "PLANTED-db-pa55"
EVERY_WAY = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: ways, path: ways}
workload: {api: ""}
keychain:
  - {name: client, kind: credential, credential: client}
  - name: api
    kind: oauth2
    auto_renew: true
    endpoint: "{{ api }}/token"
    data: {grant_type: client_credentials, client_secret: "{{ keychain.client.secret }}"}
  - name: broken
    kind: oauth2
    endpoint: "{{ api }}/refuse"
    data: {client_secret: "{{ keychain.client.secret }}"}
  - {name: db, kind: credential, credential: db}
workflow:
  - step: start
    tool:
      kind: http
      url: "{{ api }}/echo"
      headers: {Authorization: "Bearer {{ keychain.api.access_token }}"}
    set: {ctx.heard: "{{ result.data }}"}
    next: {arcs: [{step: basic}]}
  - step: basic
    tool: {kind: http, url: "{{ api }}/echo", auth: basic}
    next: {arcs: [{step: refused}]}
  - step: refused
    tool: {kind: http, url: "{{ api }}/echo", headers: {X-Token: "{{ keychain.broken.access_token }}"}}
    next: {arcs: [{step: log_in}]}
  - step: log_in
    tool: {kind: postgres, auth: db, query: "SELECT 1"}
    next: {arcs: [{step: cast, when: "{{ true }}"}]}
  - step: cast
    tool: {kind: postgres, auth: right, query: "SELECT '{{ keychain.db.db_password }}'::int"}
    next: {arcs: [{step: environment, when: "{{ true }}"}]}
  - step: environment
    tool:
      kind: python
      auth: {db: db, client: client}
      code: |
        import sys
        print(os.environ["DB_DB_PASSWORD"], file=sys.stderr)
        print(dict(os.environ), flush=True)
        raise RuntimeError("password " + os.environ["DB_DB_PASSWORD"] + " of " + repr(dict(os.environ)))
    next: {arcs: [{step: shell, when: "{{ true }}"}]}
  - step: shell
    tool: {kind: shell, auth: client, command: "env; echo $SECRET >&2; exit 3"}
"""


async def echo(request: web.Request) -> web.Response:
    """What a careless server does: it repeats what it was told."""
    return web.json_response(dict(request.headers), headers={"X-You-Said": request.headers.get("Authorization", "")})


async def refuse(request: web.Request) -> web.Response:
    return web.json_response({"error": "invalid", "error_description": (await request.text())}, status=400)


def files_below(place: Path, *but: str) -> list[bytes]:
    return [path.read_bytes() for path in place.rglob("*") if path.is_file() and path.name not in but]


def spellings(secret: str) -> set[bytes]:
    return {secret.encode(), base64.b64encode(secret.encode()), base64.b64encode(f"me:{secret}".encode())}


async def test_no_way_through_a_run_leaves_a_secret_behind(tmp_path: Path, postgres: Database) -> None:
    home = tmp_path / "home"
    (tmp_path / "ways.yaml").write_text(EVERY_WAY, encoding="utf-8")
    stored: dict[str, dict[str, object]] = {
        "client": {"type": "secret", "data": {"secret": CLIENT}},
        "basic": {"type": "basic", "data": {"username": "me", "password": BASIC}},
        "db": {"type": "postgres", "data": {**postgres.credential, "db_password": DATABASE}},
        "right": {"type": "postgres", "data": postgres.credential},
    }
    for name, credential in stored.items():
        given = json.dumps(credential["data"])
        done = noetl(home, "credential", "add", name, "--type", str(credential["type"]), "--stdin", stdin=given)
        assert done.returncode == 0, done.stderr
    async with serving() as server:
        server.answer("/token", text=json.dumps({"access_token": TOKEN, "expires_in": 3600}))
        server.answers |= {"/echo": echo, "/refuse": refuse}
        runs = [
            await asyncio.to_thread(noetl, home, "run", "ways.yaml", "--set", f"api={server.url}", *options)
            for options in ((), ("--json",))
        ]
        heard = [seen.headers.get("Authorization", "") for seen in server.seen]
    assert f"Bearer {TOKEN}" in heard
    assert "Basic " + base64.b64encode(f"me:{BASIC}".encode()).decode() in heard
    assert [run.returncode for run in runs] == [1, 1]
    assert b"keychain entry 'broken' of kind oauth2 is undefined" in runs[0].stderr
    execution = json.loads(runs[1].stdout)["execution_id"]
    left = [data for run in runs for data in (run.stdout, run.stderr)]
    for command in ("events", "replay", "status", "result", "logs"):
        shown = noetl(home, command, execution, "--json")
        assert shown.returncode == (1 if command == "status" else 0), (command, shown.stderr)
        left += [shown.stdout, shown.stderr]
    left += [noetl(home, "export", execution).stdout]
    left += files_below(tmp_path, "ways.yaml")
    everything = b"\0".join(left)
    for secret in (CLIENT, TOKEN, BASIC, DATABASE):
        assert not [spelling for spelling in spellings(secret) if spelling in everything], secret
    for trace in (b"EXIT_3", b"RuntimeError", b"PG_22P02", b"password authentication failed", b"x-you-said"):
        assert trace in everything, trace  # all of it did happen
