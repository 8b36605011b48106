"""Payloads when the world does not help: the failure is named, nothing is half there, and the run goes on later."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from noetl.adapters.objects.encrypted import EncryptedObjectStore
from noetl.adapters.objects.filesystem import FilesystemObjectStore
from noetl.payloads.sidecar import is_sidecar, read_sidecar
from noetl.ports.objects import ObjectStore
from noetl.tools.secrets.keys import FixedKeys, make_key
from tests.e2e.cli import COMMAND, Home, Result
from tests.services.buckets import Bucket
from tests.services.moto import SECRET, moto_bucket, moto_server
from tests.services.proxy import proxied
from tests.services.seaweedfs import seaweedfs_bucket, seaweedfs_server

__all__ = ["moto_bucket", "moto_server", "seaweedfs_bucket", "seaweedfs_server"]

# About 4 MB of JSON that compresses to half of it: more than the small stores below take.
PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: large, path: large}
workflow:
  - step: make
    tool:
      kind: python
      code: |
        import random
        result = {"text": random.Random(7).randbytes(2_000_000).hex(), "planted": "planted-" + "needle" * 3}
    next: {arcs: [{step: measure}]}
  - step: measure
    tool:
      kind: python
      input: {text: "{{ make.text }}"}
      code: |
        result = {"length": len(text)}
"""
LENGTH = 4_000_000


def can(*command: str) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


MOUNTS = pytest.mark.skipif(
    not can("unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"), reason="this machine lets nobody mount"
)


@pytest.fixture
def place(tmp_path: Path) -> Home:
    (tmp_path / "large.yaml").write_text(PLAYBOOK)
    return Home(tmp_path / "home")


def goes_on(home: Home, execution: str, env: Mapping[str, str] | None = None) -> None:
    """The run that failed is not lost, and what it stores now can be read."""
    done = home.json("resume", execution, env=env)
    assert (done["status"], done["result"]) == ("COMPLETED", {"length": LENGTH})
    assert home.run("verify", execution, env=env).code == 0
    assert home.run("replay", execution, "--resolve-payloads", env=env).code == 0


def is_told(result: Result, *parts: str) -> str:
    """That the failure was told as it should be; the execution that can go on."""
    assert result.code == 3, result
    assert "Traceback" not in result.stderr
    for part in parts:
        assert part in result.stderr, result.stderr
    line = next(line for line in result.stderr.splitlines() if "noetl resume" in line)
    return line.partition("noetl resume ")[2].split()[0]


# --- The disk -------------------------------------------------------------------------------------------------------

FULL = """
mount -t tmpfs -o size=1m none home/payloads
{noetl} run large.yaml 2> first.err; echo $? > first.code
cp -r home/payloads then
mount -o remount,size=64m home/payloads
{noetl} resume "$(sed -n 's/.*noetl resume \\([0-9]*\\).*/\\1/p' first.err)" --json > second.json
cp -r home/payloads after
"""


@MOUNTS
def test_a_full_disk(place: Home) -> None:
    (place.path / "payloads").mkdir(parents=True)
    place.path.chmod(0o700)
    here = place.path.parent
    script = FULL.format(noetl=shlex.join(COMMAND))
    subprocess.run(["unshare", "-rm", "sh", "-c", script], cwd=here, env=place.environment(), check=True, timeout=120)
    first = Result(int((here / "first.code").read_text()), "", (here / "first.err").read_text())
    is_told(
        first, "no room to write", "/home/payloads/", "No space left on device", "fix: free space or raise the quota"
    )
    assert list((here / "then").rglob("*.bin")) == []
    assert b'"status":"COMPLETED"' in (here / "second.json").read_bytes()
    assert len(list((here / "after").rglob("*.bin"))) == 1


def forbidding() -> list[str]:
    """How to run a command for which permissions count, also if these tests run as root."""
    return ["setpriv", "--bounding-set=-dac_override"] if os.getuid() == 0 else []


@pytest.mark.skipif(bool(forbidding()) and not can(*forbidding(), "true"), reason="root may do everything here")
def test_a_directory_that_may_not_be_written(place: Home) -> None:
    payloads = place.path / "payloads"
    assert place.run("run", "large.yaml").code == 0, "so that the document is stored already"
    payloads.chmod(0o500)
    (payloads / ".tmp").chmod(0o500)
    command = [*forbidding(), *COMMAND, "run", "large.yaml"]
    done = subprocess.run(
        command, cwd=place.path.parent, env=place.environment(), capture_output=True, text=True, timeout=60, check=False
    )
    execution = is_told(
        Result(done.returncode, done.stdout, done.stderr),
        "/home/payloads",
        "Permission denied",
        "fix: give the user that runs this read and write access",
    )
    payloads.chmod(0o700)
    (payloads / ".tmp").chmod(0o700)
    goes_on(place, execution)


# --- The bucket -----------------------------------------------------------------------------------------------------


def environment(bucket: Bucket, *, port: int | None = None, secret: str = SECRET) -> dict[str, str]:
    endpoint = bucket.options["endpoint"] if port is None else f"http://127.0.0.1:{port}"
    return {
        "NOETL_PAYLOADS__URL": f"{bucket.url}/payloads",
        "NOETL_PAYLOADS__OPTIONS": f"endpoint={endpoint}, region=us-east-1, retries=1",
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": secret,
    }


def test_wrong_credentials_are_found_before_anything_is_begun(place: Home, seaweedfs_bucket: Bucket) -> None:
    done = place.run("run", "large.yaml", env=environment(seaweedfs_bucket, secret="a-planted-wrong-secret"))
    assert done.code == 3
    assert seaweedfs_bucket.url in done.stderr
    assert "the credentials are not accepted" in done.stderr
    assert "fix: check the key and its secret, and that they have not expired" in done.stderr
    assert "planted" not in done.stderr
    assert place.json("run", "large.yaml", env=environment(seaweedfs_bucket))["status"] == "COMPLETED"
    assert len(place.json("list", env=environment(seaweedfs_bucket))["executions"]) == 1


async def test_a_network_that_is_cut_in_mid_upload(place: Home, moto_bucket: Bucket, moto_server: int) -> None:
    async with proxied(moto_server) as proxy:
        env = environment(moto_bucket, port=proxy.port)
        proxy.cut_requests_after = 1 << 20
        done = await asyncio.to_thread(place.run, "run", "large.yaml", env=env)
        execution = is_told(done, moto_bucket.url, "the connection broke")
        assert proxy.cuts
        proxy.cut_requests_after = None
        assert await results_in(moto_bucket) == []
        await asyncio.to_thread(goes_on, place, execution, env)
    assert len(await results_in(moto_bucket)) == 1


async def results_in(bucket: Bucket) -> list[str]:
    return [info.key async for info in (await bucket.open()).list() if info.key.endswith(".bin")]


# --- Kill -9 --------------------------------------------------------------------------------------------------------

WRITER = """
import asyncio, os, sys
from pathlib import Path
from noetl.adapters.objects.encrypted import EncryptedObjectStore
from noetl.adapters.objects.filesystem import FilesystemObjectStore
from noetl.payloads.store import PayloadStore
from noetl.tools.secrets.keys import FixedKeys, make_key

async def pieces(size):
    for _ in range(size // 65536):
        yield os.urandom(65536)

async def main(root, form):
    objects = await FilesystemObjectStore.open(Path(root))
    if form == "encrypted":
        objects = EncryptedObjectStore(objects, FixedKeys([make_key(b"k" * 32)]))
    payloads = PayloadStore(objects, "acme", "sales")
    print("ready", flush=True)
    while True:
        ref = await payloads.store(os.urandom(300_000), media_type="a/b")
        print(ref.sha256, flush=True)
        ref = await payloads.store(pieces(12 << 20), media_type="a/b")
        print(ref.sha256, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("form", ["plain", "encrypted"])
async def test_a_store_that_is_killed_leaves_whole_objects_or_none(tmp_path: Path, form: str) -> None:
    root, acknowledged = tmp_path / "objects", set[str]()
    for turn in range(12):
        writer = await asyncio.create_subprocess_exec(
            sys.executable, "-c", WRITER, str(root), form, stdout=asyncio.subprocess.PIPE
        )
        assert writer.stdout is not None
        assert await writer.stdout.readline() == b"ready\n"
        for _ in range(turn % 3):
            acknowledged.add((await writer.stdout.readline()).decode().strip())
        await asyncio.sleep(0.002 * turn)  # somewhere in the middle of the next store, elsewhere each time
        writer.kill()
        acknowledged |= {line for line in (await writer.stdout.read()).decode().split("\n")[:-1] if line}
        await writer.wait()
    plain = await FilesystemObjectStore.open(root)
    objects: ObjectStore = plain if form == "plain" else EncryptedObjectStore(plain, FixedKeys([make_key(b"k" * 32)]))
    kept = [info.key async for info in objects.list() if not is_sidecar(info.key)]
    assert acknowledged
    assert acknowledged <= {key.rpartition("/")[2] for key in kept}
    for key in kept:
        content = await objects.get(key)
        assert hashlib.sha256(content).hexdigest() == key.rpartition("/")[2]
        described = await read_sidecar(objects, key)
        assert described is None or described.bytes == len(content)
