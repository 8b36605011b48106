"""Objects by address in a real run: the example on every kind of store, and what a run may say of its secrets."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import zstandard

from tests.e2e.cli import PROJECT_ROOT, Home
from tests.services.azurite import KEY, azurite_bucket, azurite_server
from tests.services.buckets import QUICK, Bucket
from tests.services.emulator import free_ports
from tests.services.fake_gcs import fake_gcs_bucket, fake_gcs_server
from tests.services.moto import SECRET, moto_bucket, moto_server
from tests.services.seaweedfs import READER, seaweedfs_bucket, seaweedfs_server

__all__ = [
    "azurite_bucket", "azurite_server", "fake_gcs_bucket", "fake_gcs_server",
    "moto_bucket", "moto_server", "seaweedfs_bucket", "seaweedfs_server",
]  # fmt: skip

EXAMPLE = PROJECT_ROOT / "examples/13_object_storage.yaml"
PLANTED = (SECRET, KEY, "planted-token-of-the-tests", READER["secret_access_key"], "a-wrong-planted-secret")
ONE = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: one, path: one}}
workload: {{base: "", auth: ""}}
workflow:
  - step: start
    tool: {tool}
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def remember(home: Home, kind: str, bucket: Bucket, **changed: Any) -> None:
    """Store the credential `store`: the keys of the bucket, and how its emulator is reached."""
    data = json.dumps({**QUICK, **bucket.options, **bucket.credentials, **changed})
    file = home.path.parent / "secret.json"
    file.write_text(data)
    assert home.run("credential", "add", "store", "--type", kind, "--file", file).code == 0
    file.unlink()


def run(home: Home, tool: dict[str, Any] | None = None, *, base: str = "", env: Any = None) -> Any:
    """The document of a run of the example, or of one task, that ends as it may."""
    book = EXAMPLE
    if tool is not None:
        book = home.path.parent / "one.yaml"
        book.write_text(ONE.format(tool=json.dumps(tool)))
    done = home.run("run", book, "--set", f"base={base}", "--set", "auth=store", "--json", env=env)
    assert done.code in (0, 1), done
    return done.document


def assert_no_secret(home: Home, execution: str) -> None:
    """Nothing that the run has left, and nothing that anybody is shown of it, holds a secret."""
    shown = home.run("events", execution, "--json").stdout + home.run("logs", execution).stdout
    for path in home.path.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not [secret for secret in PLANTED if secret.encode() in content], path
    assert not [secret for secret in PLANTED if secret in shown]


def example_on(home: Home, base: str) -> None:
    ended = run(home, base=base)
    assert (ended["status"], ended["result"]) == ("COMPLETED", {"days": 3, "total": 42}), ended
    assert_no_secret(home, ended["execution_id"])
    assert home.run("verify", ended["execution_id"]).code == 0


def test_the_example_on_s3(home: Home, seaweedfs_bucket: Bucket) -> None:
    remember(home, "s3", seaweedfs_bucket)
    example_on(home, f"{seaweedfs_bucket.url}/demo")


def test_the_example_on_s3_as_moto_plays_it(home: Home, moto_bucket: Bucket) -> None:
    remember(home, "aws", moto_bucket)
    example_on(home, moto_bucket.url)


def test_the_example_on_azure(home: Home, azurite_bucket: Bucket) -> None:
    remember(home, "azure", azurite_bucket)
    example_on(home, f"{azurite_bucket.url}/demo")


def test_the_example_on_google(home: Home, fake_gcs_bucket: Bucket) -> None:
    remember(home, "google_oauth", fake_gcs_bucket)
    example_on(home, f"{fake_gcs_bucket.url}/demo")


def test_everything_may_stand_in_input_the_credential_too(home: Home, moto_bucket: Bucket) -> None:
    remember(home, "s3", moto_bucket)
    given = {"action": "put", "uri": "{{ base }}/a.json", "data": {"n": 1}, "auth": "{{ auth }}"}
    put = run(home, {"kind": "artifact", "input": given}, base=moto_bucket.url)
    assert put["status"] == "COMPLETED", put
    got = run(
        home, {"kind": "artifact", "action": "get", "uri": "{{ base }}/a.json", "auth": "store"}, base=moto_bucket.url
    )
    assert got["result"]["data"] == {"n": 1}
    assert_no_secret(home, put["execution_id"])


def test_without_a_credential_the_settings_and_the_environment_open_a_bucket(home: Home, moto_bucket: Bucket) -> None:
    """The bucket of the payloads is reached as the settings say, but what is kept there is not for tasks."""
    env = {
        "NOETL_PAYLOADS__URL": f"{moto_bucket.url}/payloads",
        "NOETL_PAYLOADS__OPTIONS": f"endpoint={moto_bucket.options['endpoint']}, region=us-east-1, retries=1",
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }
    put = {"kind": "artifact", "action": "put", "data": "text"}
    beside = run(home, {**put, "uri": "{{ base }}/mine/a"}, base=moto_bucket.url, env=env)
    assert beside["status"] == "COMPLETED", beside
    inside = run(home, {**put, "uri": "{{ base }}/payloads/default/aa"}, base=moto_bucket.url, env=env)
    assert (inside["error"]["kind"], inside["error"]["code"]) == ("storage_access", "ACCESS_REFUSED")
    assert "use the noetl:// address" in inside["error"]["message"]


@pytest.mark.parametrize(
    ("changed", "name", "code", "said"),
    [
        ({"secret_access_key": "a-wrong-planted-secret"}, "", "ACCESS_REFUSED", "the credentials are not accepted"),
        ({}, "no-such-bucket-here", "ACCESS_REFUSED", "the bucket does not exist"),
        ({"retries": 0, "endpoint": ""}, "", "STORAGE_UNAVAILABLE", "nothing listens there"),
        (READER, "", "ACCESS_REFUSED", "access is denied"),
    ],
    ids=["wrong secret", "no bucket", "nobody there", "forbidden"],
)
def test_a_failure_names_the_place_the_cause_and_the_fix(
    changed: dict[str, Any], name: str, code: str, said: str, home: Home, seaweedfs_bucket: Bucket
) -> None:
    if changed.get("endpoint") == "":
        changed = {**changed, "endpoint": f"http://127.0.0.1:{free_ports(1)[0]}"}
    remember(home, "s3", seaweedfs_bucket, **changed)
    base = f"s3://{name}" if name else seaweedfs_bucket.url
    ended = run(
        home, {"kind": "artifact", "action": "put", "uri": "{{ base }}/k", "data": 1, "auth": "store"}, base=base
    )
    assert (ended["status"], ended["error"]["code"]) == ("FAILED", code)
    assert said in ended["error"]["message"]
    assert base in ended["error"]["message"]
    assert_no_secret(home, ended["execution_id"])


def test_a_script_that_is_not_there(home: Home, moto_bucket: Bucket) -> None:
    remember(home, "s3", moto_bucket)
    script = {"uri": "{{ base }}/gone.py", "source": {"type": "s3", "auth": "store"}}
    ended = run(home, {"kind": "python", "script": script}, base=moto_bucket.url)
    assert (ended["error"]["kind"], ended["error"]["code"]) == ("not_found", "SCRIPT_NOT_FOUND")
    assert f"{moto_bucket.url}/gone.py" in ended["error"]["message"]


def test_a_run_does_not_hand_out_the_home_it_is_in(tmp_path: Path) -> None:
    """A home often lies in the directory that a run is started from."""
    home = Home(tmp_path / ".noetl")
    ended = run(home, {"kind": "artifact", "action": "get", "uri": "file://.noetl/wallet/ledger.key"})
    assert (ended["error"]["kind"], ended["error"]["code"]) == ("storage_access", "ACCESS_REFUSED")


LARGE = {"kind": "python", "code": "result = {'text': 'x' * 200_000}"}


def test_a_link_reads_a_result_without_credentials(home: Home, seaweedfs_bucket: Bucket) -> None:
    env = {
        "NOETL_PAYLOADS__URL": f"{seaweedfs_bucket.url}/payloads",
        "NOETL_PAYLOADS__OPTIONS": f"endpoint={seaweedfs_bucket.options['endpoint']}, region=us-east-1",
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }
    ended = run(home, LARGE, env=env)
    given = home.json("result", ended["execution_id"], "start", "--link", "10m", env=env)
    with urlopen(given["link"]) as answer:
        stored = answer.read()
    assert hashlib.sha256(stored).hexdigest() == given["sha256"]
    assert json.loads(zstandard.ZstdDecompressor().decompressobj().decompress(stored)) == {"text": "x" * 200_000}
    for time, said in (("8d", "use up to 7 days"), ("soon", "'soon' is not a duration")):
        refused = home.run("result", ended["execution_id"], "start", "--link", time, env=env)
        assert (refused.code, said in refused.stderr) == (2, True), refused


def test_what_no_link_can_be_made_to(home: Home) -> None:
    large, small = run(home, LARGE), run(home, {"kind": "noop"})
    on_disk = home.run("result", large["execution_id"], "start", "--link", "1h")
    assert (on_disk.code, "file:// has no signatures" in on_disk.stderr) == (3, True)
    inline = home.run("result", small["execution_id"], "start", "--link", "1h")
    assert (inline.code, "stands in its event and has no object" in inline.stderr) == (2, True)
