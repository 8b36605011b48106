"""A planted secret appears nowhere: not in the log, the database, the output, an export or an error."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
