"""Real failures of cloud stores: each is told in words a person can act on, and what was tried can be tried again."""

from __future__ import annotations

import asyncio
import logging
import ssl
import sys
import traceback
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web

from noetl.adapters.objects.cloud import CloudObjectStore
from noetl.adapters.objects.urls import open_store
from noetl.errors import InvalidInput, StorageFull, Unavailable
from noetl.ports.objects import ObjectStore
from tests.contracts.object_store import keys, pieces
from tests.services.azurite import ACCOUNT
from tests.services.buckets import QUICK, Bucket
from tests.services.emulator import free_ports, running
from tests.services.http import Handler, Server, serving
from tests.services.moto import SECRET, moto_bucket, moto_command, moto_server, s3_bucket, s3_client
from tests.services.proxy import proxied
from tests.services.seaweedfs import READER, seaweedfs_bucket, seaweedfs_server

__all__ = ["moto_bucket", "moto_server", "seaweedfs_bucket", "seaweedfs_server"]


@pytest.fixture(autouse=True)
async def nothing_left_open() -> AsyncIterator[None]:
    """What cut and refused connections have left on our side is closed before the event loop is."""
    yield
    loop: Any = asyncio.get_running_loop()
    for transport in list(loop._transports.values()):
        transport.abort()
    await asyncio.sleep(0)
    await asyncio.sleep(0)


PIECE = b"x" * (3 << 20)
KEYS = {"access_key_id": "tests", "secret_access_key": SECRET}


def through(bucket: Bucket, port: int) -> Mapping[str, object]:
    return {**QUICK, **bucket.options, "endpoint": f"http://127.0.0.1:{port}"}


async def failure(url: str, options: Mapping[str, object], credentials: Mapping[str, str] = KEYS) -> Unavailable:
    """What opening this store fails with, which must not tell a secret to whoever prints it."""
    with pytest.raises(Unavailable) as caught:
        await open_store(url, {**QUICK, **options}, credentials)
    printed = "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None
    assert not [value for name, value in credentials.items() if name != "access_key_id" and value in printed]
    return caught.value


# --- What the store says -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "credentials",
    [{**KEYS, "secret_access_key": "a-wrong-planted-secret"}, {**KEYS, "access_key_id": "nobody"}],
    ids=["wrong secret", "unknown key"],
)
async def test_wrong_credentials(seaweedfs_bucket: Bucket, credentials: dict[str, str]) -> None:
    error = await failure(seaweedfs_bucket.url, seaweedfs_bucket.options, credentials)
    assert f"{seaweedfs_bucket.url} at http://127.0.0.1:" in error.message
    assert "the credentials are not accepted (" in error.message
    assert error.hint == "check the key and its secret, and that they have not expired"


async def test_given_credentials_are_not_mixed_with_the_environment(
    seaweedfs_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-somebody-else")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-somebody-else")
    store = await seaweedfs_bucket.open()
    assert await store.put("key", b"x") is True


async def test_credentials_come_from_the_environment(seaweedfs_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    store = await seaweedfs_bucket.open(credentials={})
    assert await store.put("key", b"x") is True


async def test_a_reader_may_read_but_not_write(seaweedfs_bucket: Bucket) -> None:
    await (await seaweedfs_bucket.open()).put("key", b"content")
    reader = await seaweedfs_bucket.open(credentials=READER)
    assert await reader.get("key") == b"content"
    for overwrite in (False, True):
        with pytest.raises(Unavailable, match=r"access is denied \(AccessDenied\)") as caught:
            await reader.put("other", b"x", overwrite=overwrite)
        assert caught.value.hint == (
            "allow reading, writing, listing and deleting in this bucket for these credentials"
        )


async def test_a_missing_bucket(moto_server: int) -> None:
    error = await failure("s3://no-such-bucket", {"endpoint": f"http://127.0.0.1:{moto_server}"})
    assert "s3://no-such-bucket at http://127.0.0.1:" in error.message
    assert "the bucket does not exist (NoSuchBucket)" in error.message
    assert error.hint == "create it, or correct the name in the url"


async def test_a_bucket_that_vanishes_is_not_taken_for_a_missing_object(moto_bucket: Bucket, moto_server: int) -> None:
    store = await moto_bucket.open()
    client = s3_client(moto_server)
    client.delete_bucket(Bucket=moto_bucket.url.removeprefix("s3://"))
    client.close()
    for call in (store.get("key"), store.put("key", b"x"), keys(store)):
        with pytest.raises(Unavailable, match="the bucket does not exist"):
            await call


@pytest.mark.parametrize(
    ("status", "code", "error", "cause"),
    [
        (507, "InsufficientStorage", StorageFull, "there is no room left"),
        (403, "QuotaExceeded", StorageFull, "there is no room left"),
        (503, "SlowDown", Unavailable, "the store asks to slow down"),
        (500, "InternalError", Unavailable, "the store failed"),
        (403, "RequestTimeTooSkewed", Unavailable, "clock differs"),
        (400, "AuthorizationHeaderMalformed", Unavailable, "in another region"),
        (403, "ExpiredToken", Unavailable, "credentials are not accepted"),
        (400, "EntityTooLarge", Unavailable, "larger than the store takes"),
        (418, "Teapot", Unavailable, r"the store's client reports GenericError \(Teapot\)"),
    ],
)
async def test_what_a_store_can_answer(status: int, code: str, error: type[Unavailable], cause: str) -> None:
    async with fake_s3() as (server, store):
        body = f"<Error><Code>{code}</Code><Message>{SECRET}</Message></Error>"
        server.answer("/bucket/key", status, text=body)
        with pytest.raises(error, match=cause) as caught:
            await store.put("key", b"x", overwrite=True)
        assert "'key' in s3://bucket at http://127.0.0.1:" in caught.value.message
        assert caught.value.hint
        assert SECRET not in "".join(traceback.format_exception(caught.value))
        server.answers["/bucket/key"] = taking
        assert await store.put("key", b"x", overwrite=True) is True


async def test_a_passing_failure_is_tried_again() -> None:
    async with fake_s3() as (server, store):
        answers = iter([web.Response(status=503), web.Response(status=500), web.Response(headers={"ETag": '"1"'})])

        async def next_answer(_: web.Request) -> web.Response:
            return next(answers)

        server.answers["/bucket/key"] = next_answer
        assert await store.put("key", b"x", overwrite=True) is True


# --- Create only ---------------------------------------------------------------------------------------------------


async def test_a_store_that_ignores_conditions_is_refused() -> None:
    async with fake_s3() as (server, store):
        with pytest.raises(Unavailable, match="does not keep to the condition of conditional writes") as caught:
            await store.put("key", b"x")
        assert caught.value.hint
        assert 'create_only = "unsafe"' in caught.value.hint
        assert "/bucket/key" not in [seen.path for seen in server.seen]


async def test_a_store_that_ignores_conditions_can_be_used_by_one_writer() -> None:
    async with fake_s3(create_only="unsafe") as (server, store):
        server.answers["/bucket/key"] = web_missing
        assert await store.put("key", b"x") is True
        server.answers["/bucket/key"] = taking
        assert await store.put("key", b"y") is False


async def test_a_race_that_the_store_has_not_decided_is_run_again() -> None:
    async with fake_s3(create_only="trusted") as (server, store):
        conflict = "<Error><Code>ConditionalRequestConflict</Code></Error>"
        answers = iter([web.Response(status=409, text=conflict), web.Response(headers={"ETag": '"1"'})])

        async def next_answer(_: web.Request) -> web.Response:
            return next(answers)

        server.answers["/bucket/key"] = next_answer
        assert await store.put("key", b"x") is True


async def test_a_key_that_is_taken_by_nothing_is_an_error_not_a_lost_race() -> None:
    async with fake_s3(create_only="trusted") as (server, store):

        async def refuse(request: web.Request) -> web.Response:
            return web.Response(status=404 if request.method == "HEAD" else 412)

        server.answers["/bucket/key"] = refuse
        with pytest.raises(InvalidInput, match=r"'key' is refused by .* as taken, but there is no such object"):
            await store.put("key", b"x")


# --- The network ---------------------------------------------------------------------------------------------------


async def test_nothing_listens() -> None:
    error = await failure("s3://bucket", {"endpoint": f"http://127.0.0.1:{free_ports(1)[0]}"})
    assert "cannot be reached: nothing listens there" in error.message
    assert error.hint == "start the store, or correct the option endpoint"


async def test_a_name_that_nobody_knows() -> None:
    error = await failure("s3://bucket", {"endpoint": "https://no-such-host.invalid"})
    assert "s3://bucket at https://no-such-host.invalid cannot be reached: its name cannot be resolved" in error.message


async def test_tls_where_there_is_none(moto_server: int) -> None:
    error = await failure("s3://bucket", {"endpoint": f"https://127.0.0.1:{moto_server}"})
    assert "it does not speak TLS" in error.message


async def test_a_certificate_that_is_not_trusted_and_how_to_trust_it(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    async with serving(context=context) as server:
        server.answer("/bucket", text="<ListBucketResult></ListBucketResult>")
        error = await failure("s3://bucket", {"endpoint": server.url})
        assert "its TLS certificate is not trusted" in error.message
        assert "ca_file" in str(error.hint)
        (tmp_path / "ca.pem").write_bytes(authority.cert_pem.bytes())
        store = await open_store("s3://bucket", {"endpoint": server.url, "ca_file": str(tmp_path / "ca.pem")}, KEYS)
        assert await keys(store) == []


async def test_a_store_that_does_not_answer(moto_bucket: Bucket) -> None:
    async with serving() as server:

        async def hang(_: web.Request) -> web.Response:
            await asyncio.Event().wait()
            raise AssertionError

        server.answers["/bucket"] = hang
        error = await failure("s3://bucket", {"endpoint": server.url, "timeout": "300ms", "retries": 0})
    assert "it did not answer in time" in error.message


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("size", [1, 7], ids=["one request", "in parts"])
async def test_a_connection_that_is_cut_in_mid_upload(
    moto_bucket: Bucket, moto_server: int, size: int, overwrite: bool
) -> None:
    async with proxied(moto_server) as proxy:
        store = await open_store(moto_bucket.url, {**through(moto_bucket, proxy.port), "retries": 1}, KEYS)
        assert await store.put("warm", b"x")
        proxy.cut_requests_after = 2 << 20
        with pytest.raises(Unavailable, match="the connection broke"):
            await store.put("key", pieces(*[PIECE] * size), overwrite=overwrite)
        assert proxy.cuts
        assert await keys(store) == ["warm"]
        assert await store.head("key") is None
        proxy.cut_requests_after = None
        assert await store.put("key", pieces(*[PIECE] * size), overwrite=overwrite) is True
        assert await store.get("key") == PIECE * size


async def test_a_connection_that_is_cut_once_while_reading(moto_bucket: Bucket, moto_server: int) -> None:
    async with proxied(moto_server) as proxy:
        store = await open_store(moto_bucket.url, through(moto_bucket, proxy.port), KEYS)
        await store.put("key", PIECE * 7)
        reading = store.stream("key")
        got = await anext(reading)
        proxy.cut_answers_after = 2 << 20
        with pytest.raises(Unavailable, match=r"'key' in s3://.* cannot be reached"):
            [chunk async for chunk in reading]
        proxy.cut_answers_after = None
        assert await store.get("key") == PIECE * 7
        assert got == PIECE[: 1 << 20]


async def test_a_server_that_is_killed_in_mid_upload(tmp_path: Path) -> None:
    with running(tmp_path / "moto", moto_command) as (port, kill):
        store = await s3_bucket(port).open(retries=1)

        async def until_killed() -> AsyncIterator[bytes]:
            for _ in range(4):
                yield PIECE
            kill()
            for _ in range(4):
                yield PIECE

        with pytest.raises(Unavailable, match=r"'key' in s3://.* cannot be reached: nothing listens there"):
            await store.put("key", until_killed())


@pytest.mark.parametrize(("point", "left", "drafts"), [("sending", [], 0), ("copying", [], 1), ("copied", ["key"], 1)])
async def test_a_writer_that_is_killed_leaves_a_whole_object_or_none(
    moto_bucket: Bucket, point: str, left: list[str], drafts: int
) -> None:
    endpoint = str(moto_bucket.options["endpoint"])
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, moto_bucket.url, endpoint, SECRET, point, stdout=asyncio.subprocess.PIPE
    )
    assert writer.stdout is not None
    assert await writer.stdout.readline() == b"there\n"
    writer.kill()
    await writer.wait()
    store = await moto_bucket.open()
    assert isinstance(store, CloudObjectStore)
    assert await keys(store) == left
    assert len([draft async for draft in store._listed(".tmp")]) == drafts
    assert await store.put("key", pieces(*[PIECE] * 6)) is (not left)
    assert await store.get("key") == PIECE * 6


async def test_a_long_stream_is_never_in_memory_whole(moto_bucket: Bucket) -> None:
    endpoint = str(moto_bucket.options["endpoint"])
    done = await asyncio.create_subprocess_exec(
        sys.executable, "-c", MEASURED, moto_bucket.url, endpoint, SECRET, stdout=asyncio.subprocess.PIPE
    )
    stdout, _ = await done.communicate()
    size, grown = map(int, stdout.split())
    assert size == 192 << 20
    assert grown < 96 << 20


# --- Secrets -------------------------------------------------------------------------------------------------------


async def test_a_signature_in_an_address_is_told_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    endpoint = f"http://127.0.0.1:{free_ports(1)[0]}/{ACCOUNT}"
    signature = "sv=2020-08-04&ss=b&srt=sco&sp=rl&se=2030-01-01T00:00:00Z&sig=cGxhbnRlZC1zaWduYXR1cmU%3D"
    error = await failure("az://container", {"endpoint": endpoint, "account": ACCOUNT}, {"sas_token": signature})
    printed = "".join(traceback.format_exception(error)) + caplog.text
    assert "cGxhbnRlZC1zaWduYXR1cmU" not in printed
    assert "sig=" not in printed


# --- Help ----------------------------------------------------------------------------------------------------------

OPENED = """
import asyncio, resource, sys
from noetl.adapters.objects.creation import Creator
from noetl.adapters.objects.urls import open_store

url, endpoint, secret, *point = sys.argv[1:]

def opened():
    return open_store(url, {"endpoint": endpoint}, {"access_key_id": "tests", "secret_access_key": secret})
"""

WRITER = f"""{OPENED}
copy = Creator._copy

async def stop():
    print("there", flush=True)
    await asyncio.Event().wait()

async def data():
    for _ in range(6):
        yield b"x" * (3 << 20)
    if point == ["sending"]:
        await stop()

async def stopping(self, copier, key, *paths):
    if key == "key" and point == ["copying"]:
        await stop()
    done = await copy(self, copier, key, *paths)
    if key == "key":
        await stop()
    return done

async def main():
    Creator._copy = stopping
    await (await opened()).put("key", data())

asyncio.run(main())
"""

MEASURED = f"""{OPENED}
async def data():
    for _ in range(192):
        yield b"x" * (1 << 20)

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

async def main():
    store = await opened()
    await store.put("small", b"x")
    before = peak()
    assert await store.put("key", data())
    size = sum([len(chunk) async for chunk in store.stream("key")])
    print(size, peak() - before)

asyncio.run(main())
"""


@asynccontextmanager
async def fake_s3(**options: object) -> AsyncIterator[tuple[Server, ObjectStore]]:
    """A server that takes everything and keeps nothing, and a store there."""
    async with serving() as server:
        server.answer("/bucket", text="<ListBucketResult></ListBucketResult>")
        server.answers["/bucket/key"] = taking
        server.answers = Otherwise(server.answers)
        yield server, await open_store("s3://bucket", {**QUICK, "endpoint": server.url, **options}, KEYS)


class Otherwise(dict[str, Handler]):
    """Takes every path that no test has an answer for."""

    def get(self, path: str, default: object = None) -> Handler:
        return super().get(path, taking)


async def taking(_: web.Request) -> web.Response:
    return web.Response(body=b"x", headers={"ETag": '"1"', "Last-Modified": "Sun, 15 Nov 2026 07:00:00 GMT"})


async def web_missing(request: web.Request) -> web.Response:
    if request.method == "HEAD":
        return web.Response(status=404)
    return web.Response(headers={"ETag": '"1"'})
