"""The artifact tool: files here, everything else through what it was given."""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from noetl.errors import (
    AccessRefused,
    Conflict,
    IntegrityMismatch,
    InvalidInput,
    NoetlError,
    NotFound,
    StorageFull,
    Unavailable,
)
from noetl.payloads.files import Files
from noetl.payloads.resolver import Caller, Entry, Resolver, TooLarge, Written
from noetl.tools.artifact import ArtifactTool
from noetl.tools.base import Call, Outcome
from tests.unit.tools.example import run_example


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "desk").mkdir()
    return tmp_path


async def use(
    home: Path,
    action: str,
    tool: ArtifactTool | None = None,
    given: Any = None,
    resolver: Resolver | None = None,
    **fields: Any,
) -> Outcome:
    return await (tool or ArtifactTool()).run(
        Call(
            kind="artifact",
            fields={"action": action, **fields},
            input=given or {},
            auth={"type": "s3", "access_key_id": "k"},
            directory=home / "desk",
            scratch=home / "scratch",
            resolver=resolver,
        )
    )


def error_of(outcome: Outcome) -> dict[str, Any]:
    assert outcome.error is not None, outcome.result
    return outcome.error


def stored(path: Path) -> bytes:
    return path.read_bytes()


class TestFiles:
    async def test_what_was_put_can_be_got(self, home: Path) -> None:
        uri = f"file://{home}/desk/out/a.json"
        put = await use(home, "put", uri=uri, data={"n": 1, "list": [None]})
        content = b'{"n":1,"list":[null]}'
        assert put.result == {
            "uri": uri, "size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), "compressed": True,
            "stored_bytes": len(stored(home / "desk/out/a.json")),
        }  # fmt: skip
        got = await use(home, "get", uri=uri)
        data = {"n": 1, "list": [None]}
        assert got.result == {**data, "data": data, "uri": uri, "size_bytes": len(content), "compressed": True}

    @pytest.mark.parametrize(
        ("compress", "name", "magic"),
        [(True, "a.json", b"\x28\xb5"), (None, "a.json.zst", b"\x28\xb5"), (True, "a.json.gz", b"\x1f\x8b"),
         ("gzip", "a.json", b"\x1f\x8b"), ("zstd", "a.gz", b"\x28\xb5"),
         (False, "a.json", b"[1"), ("false", "a", b"[1")],
    )  # fmt: skip
    async def test_compression(self, home: Path, compress: Any, name: str, magic: bytes) -> None:
        await use(home, "put", uri=f"file://{name}", data=[1, 2], compress=compress)
        assert stored(home / "desk" / name).startswith(magic)
        assert (await use(home, "get", uri=f"file://{name}")).result["data"] == [1, 2]

    @pytest.mark.parametrize(
        ("content", "name", "expected"),
        [
            (b"a,b\n1,2\n", "t.csv", "a,b\n1,2\n"),
            (b'{"a": 1}', "t", {"a": 1}),
            (b"{not json", "t", "{not json"),
            (b"5", "t.json", 5),
            (b"null", "t.json", None),
            (b"5", "t.txt", "5"),
            (b"", "t.txt", ""),
            (gzip.compress(b"text", mtime=0), "t.log.gz", "text"),
            (zstandard.compress(b"[1]") + zstandard.compress(b""), "t", [1]),
            (b"\x1f\x8b is text after all", "t", None),
        ],
    )
    async def test_how_content_is_read(self, home: Path, content: bytes, name: str, expected: Any) -> None:
        (home / "desk" / name).write_bytes(content)
        result = (await use(home, "get", uri=f"file://{name}")).result
        assert expected == result["data"] or result["encoding"] == "base64"

    async def test_bytes_come_as_base64(self, home: Path) -> None:
        (home / "desk" / "b").write_bytes(b"\xff\x00")
        result = (await use(home, "get", uri="file://b")).result
        assert (result["data"], result["encoding"]) == ("/wA=", "base64")

    async def test_everything_may_stand_in_input(self, home: Path) -> None:
        tool = ArtifactTool()
        call = Call(kind="artifact", input={"action": "put", "uri": "file://a", "data": "x"}, directory=home / "desk")
        assert (await tool.run(call)).error is None
        assert (await use(home, "get", given={"uri": "file://a"})).result["data"] == "x"

    @pytest.mark.parametrize(
        "uri", ["file://{home}/scratch/a", "file://localhost{home}/desk/a", "file://a%20b", "file://./a"]
    )
    async def test_places_that_may_be_used(self, home: Path, uri: str) -> None:
        assert (await use(home, "put", uri=uri.format(home=home), data="x")).error is None
        assert (await use(home, "get", uri=uri.format(home=home))).result["data"] == "x"

    @pytest.mark.parametrize(
        "uri", ["file:///etc/passwd", "file://../secret", "file://%2e%2e/secret", "file://link/secret"]
    )
    @pytest.mark.parametrize("action", ["get", "put"])
    async def test_places_that_may_not(self, home: Path, uri: str, action: str) -> None:
        (home / "secret").write_text("hush")
        (home / "desk" / "link").symlink_to(home)
        outcome = await use(home, action, uri=uri, data="x")
        assert (error_of(outcome)["kind"], error_of(outcome)["retryable"]) == ("storage_access", False)
        assert (home / "secret").read_text() == "hush"

    async def test_more_places_can_be_given(self, home: Path) -> None:
        resolver = Resolver({"file": lambda: Files([home / "shared"])})
        put = await use(home, "put", resolver=resolver, uri=f"file://{home}/shared/a", data="x")
        assert put.error is None

    async def test_a_file_that_is_not_there(self, home: Path) -> None:
        error = error_of(await use(home, "get", uri="file://gone"))
        assert (error["kind"], error["code"], error["retryable"]) == (
            "missing_reference", "REFERENCE_NOT_AVAILABLE", True,
        )  # fmt: skip

    async def test_what_is_not_a_file(self, home: Path) -> None:
        os.mkfifo(home / "desk" / "pipe")
        for name in ("pipe", "."):
            assert error_of(await use(home, "get", uri=f"file://{name}"))["kind"] == "storage_access"

    async def test_a_place_that_cannot_be_written(self, home: Path) -> None:
        (home / "desk" / "file").write_text("x")
        assert error_of(await use(home, "put", uri="file://file/below", data="x"))["kind"] == "storage_access"
        assert sorted(path.name for path in (home / "desk").iterdir()) == ["file"]

    async def test_what_is_too_large(self, home: Path) -> None:
        tool = ArtifactTool(max_bytes=1000)
        (home / "desk" / "plain").write_bytes(b"x" * 1001)
        (home / "desk" / "bomb").write_bytes(zstandard.compress(b"x" * 10_000_000))
        for name in ("plain", "bomb"):
            assert error_of(await use(home, "get", tool, uri=f"file://{name}"))["kind"] == "storage_quota"


class TestReferences:
    async def test_in_every_form(self, home: Path) -> None:
        (home / "desk" / "a").write_text("x")
        digest = hashlib.sha256(b"x").hexdigest()
        reference = {"kind": "result_ref", "ref": "file://a", "uri": "file://a", "meta": {"sha256": digest}}
        for form in ("file://a", reference, {"_ref": reference, "n": 1}, '{"uri": "file://a"}', {"ref": "file://a"}):
            assert (await use(home, "get", result_ref=form)).result["data"] == "x"

    async def test_what_was_changed_is_refused(self, home: Path) -> None:
        (home / "desk" / "a").write_text("y")
        reference = {"uri": "file://a", "meta": {"sha256": hashlib.sha256(b"x").hexdigest()}}
        assert error_of(await use(home, "get", result_ref=reference))["code"] == "DIGEST_MISMATCH"

    @pytest.mark.parametrize("bad", [None, "", {}, 5, "{broken"])
    async def test_what_is_none(self, home: Path, bad: Any) -> None:
        assert error_of(await use(home, "get", result_ref=bad))["kind"] in ("schema", "parse")


class Shelf:
    """A scheme that keeps what it is given, and raises what it is told to."""

    def __init__(self, raised: Exception | None = None, **kept: Any) -> None:
        self.kept: dict[str, Any] = kept
        self.raised = raised
        self.callers: list[Caller] = []

    async def read(self, uri: str, caller: Caller, *, limit: int) -> Any:
        self.callers.append(caller)
        if self.raised is not None:
            raise self.raised
        return self.kept[uri.rpartition("/")[2]]

    async def write(self, uri: str, data: bytes, caller: Caller, *, overwrite: bool) -> Written:
        self.callers.append(caller)
        name = uri.rpartition("/")[2]
        if name in self.kept and not overwrite:
            return Written(uri, created=False)
        self.kept[name] = data
        return Written(f"{uri}@1")

    async def list(self, uri: str, caller: Caller) -> AsyncGenerator[Entry, None]:
        for name in sorted(self.kept):
            yield Entry(uri=uri + name, size_bytes=1, modified_at="2026-01-01T00:00:00.000000Z")


def on(shelf: Any) -> Resolver:
    return Resolver({"s3": lambda: shelf})


class TestStores:
    async def test_a_scheme_that_nobody_knows_is_said(self, home: Path) -> None:
        for uri in ("ftp://x/y", "s3:/b/k", "nothing"):
            for action in ("get", "put", "list"):
                error = error_of(await use(home, action, uri=uri, data="x"))
                assert (error["kind"], "use one of file://" in error["message"]) == ("schema", True)

    async def test_they_get_bytes_and_give_bytes_or_values(self, home: Path) -> None:
        shelf = Shelf(value={"a": 1})
        put = await use(home, "put", resolver=on(shelf), uri="s3://b/k", data="text")
        assert (put.result["uri"], shelf.kept["k"][:2]) == ("s3://b/k@1", b"\x28\xb5")
        assert (await use(home, "get", resolver=on(shelf), uri="s3://b/k")).result["data"] == "text"
        assert (await use(home, "get", resolver=on(shelf), uri="s3://b/value")).result == {
            "a": 1, "data": {"a": 1}, "uri": "s3://b/value", "size_bytes": 7, "compressed": False,
        }  # fmt: skip
        assert {caller.auth["access_key_id"] for caller in shelf.callers} == {"k"}

    @pytest.mark.parametrize(
        ("raised", "kind", "code", "retryable"),
        [(NotFound("gone"), "missing_reference", "REFERENCE_NOT_AVAILABLE", True),
         (StorageFull("full"), "storage_quota", "STORAGE_FULL", False),
         (TooLarge("huge"), "storage_quota", "STORAGE_FULL", False),
         (AccessRefused("no"), "storage_access", "ACCESS_REFUSED", False),
         (IntegrityMismatch("damaged"), "storage_access", "DIGEST_MISMATCH", False),
         (Conflict("replaced"), "storage_access", "OBJECT_CHANGED", True),
         (InvalidInput("nonsense"), "schema", "FIELD_INVALID", False),
         (Unavailable("away"), "storage_access", "STORAGE_UNAVAILABLE", True)],
    )  # fmt: skip
    async def test_their_errors_are_the_tasks(
        self, home: Path, raised: NoetlError, kind: str, code: str, retryable: bool
    ) -> None:
        error = error_of(await use(home, "get", resolver=on(Shelf(raised)), uri="s3://b/k"))
        assert (error["kind"], error["code"], error["retryable"]) == (kind, code, retryable)
        assert raised.message in error["message"]

    async def test_a_reference_may_have_the_digest_of_the_stored_bytes(self, home: Path) -> None:
        packed = zstandard.compress(b"text")
        for digest, code in ((hashlib.sha256(packed).hexdigest(), None), ("0" * 64, "DIGEST_MISMATCH")):
            got = await use(
                home, "get", resolver=on(Shelf(k=packed)), result_ref={"uri": "s3://b/k", "meta": {"sha256": digest}}
            )
            assert (got.error or {"code": None})["code"] == code


class TestOverwriting:
    async def test_by_default_what_is_there_is_replaced(self, home: Path) -> None:
        for data in ("one", "two"):
            assert (await use(home, "put", uri="file://a", data=data)).error is None
        assert (await use(home, "get", uri="file://a")).result["data"] == "two"

    async def test_what_is_there_can_be_kept(self, home: Path) -> None:
        first = await use(home, "put", uri="file://a", data="one", overwrite=False)
        assert first.result["created"] is True
        error = error_of(await use(home, "put", uri="file://a", data="two", overwrite=False))
        assert (error["kind"], error["code"], error["retryable"]) == ("storage_access", "OBJECT_EXISTS", False)
        assert (await use(home, "get", uri="file://a")).result["data"] == "one"

    async def test_a_task_that_is_delivered_twice_finds_its_own(self, home: Path) -> None:
        await use(home, "put", uri="file://a", data="one", overwrite=False, compress=False)
        again = await use(home, "put", uri="file://a", data="one", overwrite=False)
        assert (again.error, again.result["created"]) == (None, False)


class TestListing:
    async def test_objects_are_listed_up_to_a_limit(self, home: Path) -> None:
        for name in ("out/b", "out/a", "out/c/d", "other"):
            await use(home, "put", uri=f"file://{name}", data="x", compress=False)
        whole = (await use(home, "list", uri="file://out/")).result
        assert [entry["uri"] for entry in whole["objects"]] == ["file://out/a", "file://out/b", "file://out/c/d"]
        assert (whole["count"], whole["truncated"], whole["objects"][0]["size_bytes"]) == (3, False, 1)
        part = (await use(home, "list", uri="file://out/", limit="2")).result
        assert (part["count"], part["truncated"]) == (2, True)
        assert (await use(home, "list", uri="file://nowhere/")).result["count"] == 0

    @pytest.mark.parametrize("limit", [0, -1, 100_001, "many", True])
    async def test_a_limit_is_a_number(self, home: Path, limit: Any) -> None:
        assert "limit" in error_of(await use(home, "list", uri="file://x/", limit=limit))["message"]


class TestFields:
    async def test_what_is_needed(self, home: Path) -> None:
        assert "action" in error_of(await use(home, "move"))["message"]
        assert error_of(await use(home, "put", uri="file://a"))["code"] == "FIELD_MISSING"
        assert error_of(await use(home, "put", data="x"))["code"] == "FIELD_MISSING"
        assert error_of(await use(home, "list"))["code"] == "FIELD_MISSING"

    def test_only_reading_has_no_side_effect(self) -> None:
        tool = ArtifactTool()
        assert [tool.side_effecting({"action": action}) for action in ("get", "list", "put", "{{ what }}")] == [
            False,
            False,
            True,
            True,
        ]
        assert tool.side_effecting({})


async def test_the_example_of_its_page_runs(home: Path) -> None:
    outcomes = await run_example(ArtifactTool(), home=home, workload={})
    assert (outcomes[-1].result["orders"], outcomes[-1].result["data"]) == (3, {"orders": 3, "total": 59.5})
