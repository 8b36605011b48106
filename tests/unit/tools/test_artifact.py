"""The artifact tool: files here, everything else through what it was given."""

from __future__ import annotations

import gzip
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
import zstandard

from noetl.errors import NotFound, StorageFull, Unavailable
from noetl.tools.artifact import ArtifactTool
from noetl.tools.base import Call, Outcome
from tests.unit.tools.example import run_example


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "desk").mkdir()
    return tmp_path


async def use(home: Path, action: str, tool: ArtifactTool | None = None, given: Any = None, **fields: Any) -> Outcome:
    return await (tool or ArtifactTool()).run(
        Call(
            kind="artifact",
            fields={"action": action, **fields},
            input=given or {},
            directory=home / "desk",
            scratch=home / "scratch",
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
        tool = ArtifactTool(roots=[home / "shared"])
        assert (await use(home, "put", tool, uri=f"file://{home}/shared/a", data="x")).error is None

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


class TestStores:
    async def test_without_one_it_is_said(self, home: Path) -> None:
        for uri in ("noetl://execution/1/x", "s3://b/k", "gs://b/k"):
            for action in ("get", "put"):
                error = error_of(await use(home, action, uri=uri, data="x"))
                assert (error["kind"], uri.partition(":")[0] in error["message"]) == ("storage_access", True)

    async def test_they_get_bytes_and_give_bytes_or_values(self, home: Path) -> None:
        kept: dict[str, Any] = {"s3://b/value": {"a": 1}}

        async def resolve(uri: str, call: Call) -> Any:
            return kept[uri]

        async def store(uri: str, content: bytes, call: Call) -> str:
            kept[uri] = content
            return uri + "?version=1"

        tool = ArtifactTool(resolve=resolve, store=store)
        put = await use(home, "put", tool, uri="s3://b/k", data="text")
        assert (put.result["uri"], kept["s3://b/k"][:2]) == ("s3://b/k?version=1", b"\x28\xb5")
        assert (await use(home, "get", tool, uri="s3://b/k")).result["data"] == "text"
        assert (await use(home, "get", tool, uri="s3://b/value")).result == {
            "a": 1, "data": {"a": 1}, "uri": "s3://b/value", "size_bytes": 7, "compressed": False,
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("raised", "kind"),
        [(NotFound("gone"), "missing_reference"), (StorageFull("full"), "storage_quota"),
         (Unavailable("away"), "storage_access")],
    )  # fmt: skip
    async def test_their_errors_are_the_tasks(self, home: Path, raised: Exception, kind: str) -> None:
        async def resolve(uri: str, call: Call) -> Any:
            raise raised

        assert error_of(await use(home, "get", ArtifactTool(resolve=resolve), uri="s3://b/k"))["kind"] == kind


class TestFields:
    async def test_what_is_needed(self, home: Path) -> None:
        assert "action" in error_of(await use(home, "move"))["message"]
        assert error_of(await use(home, "put", uri="file://a"))["code"] == "FIELD_MISSING"
        assert error_of(await use(home, "put", data="x"))["code"] == "FIELD_MISSING"
        assert error_of(await use(home, "get", uri="ftp://x"))["kind"] == "schema"

    def test_only_a_get_has_no_side_effect(self) -> None:
        tool = ArtifactTool()
        assert [tool.side_effecting({"action": action}) for action in ("get", "put", "{{ what }}")] == [
            False,
            True,
            True,
        ]
        assert tool.side_effecting({})


async def test_the_example_of_its_page_runs(home: Path) -> None:
    outcomes = await run_example(ArtifactTool(), home=home, workload={})
    assert (outcomes[-1].result["orders"], outcomes[-1].result["data"]) == (3, {"orders": 3, "total": 59.5})
