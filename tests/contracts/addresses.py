"""What every scheme that holds objects owes to an artifact task."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import Any

import pytest

from noetl.adapters.objects.addresses import SCHEMES, Buckets
from noetl.payloads.files import Files
from noetl.payloads.resolver import Resolver
from noetl.tools.artifact import ArtifactTool
from noetl.tools.base import Call, Outcome
from noetl.tools.scripts import load

__all__ = ["AddressContract"]

TOOL = ArtifactTool()


class AddressContract:
    """A suite sets `base`, an address that ends with a slash, and `auth`, the credential for it."""

    @pytest.fixture
    def auth(self) -> Any:
        return None

    @pytest.fixture
    def call(self, auth: Any, tmp_path: Path) -> Call:
        """A task with this credential; it keeps the clients that are opened for it."""
        buckets = Buckets()
        resolver = Resolver({"file": Files, **dict.fromkeys(SCHEMES, lambda: buckets)})
        return Call(kind="artifact", auth=auth, directory=tmp_path, resolver=resolver)

    async def test_what_was_put_can_be_got(self, base: str, call: Call) -> None:
        data = {"n": 1, "list": [None, "ä"]}
        put = done(await act(call, "put", f"{base}dir/a.json", data=data))
        got = done(await act(call, "get", put["uri"]))
        assert (got["data"], got["n"], got["compressed"]) == (data, 1, True)
        assert got["size_bytes"] == put["size_bytes"]

    async def test_a_body_of_many_parts(self, base: str, call: Call) -> None:
        text = random.Random(4).randbytes(10 << 20).hex()
        put = done(await act(call, "put", f"{base}large.txt", data=text, compress=False))
        assert put["sha256"] == hashlib.sha256(text.encode()).hexdigest()
        reference = {"uri": put["uri"], "meta": {"sha256": put["sha256"]}}
        assert done(await act(call, "get", None, result_ref=reference))["data"] == text
        refused = await act(call, "get", put["uri"], tool=ArtifactTool(max_bytes=len(text) - 1))
        assert error(refused)["kind"] == "storage_quota"

    async def test_what_is_there_is_replaced_or_kept(self, base: str, call: Call) -> None:
        uri = f"{base}once"
        assert done(await act(call, "put", uri, data="one", overwrite=False))["created"]
        assert not done(await act(call, "put", uri, data="one", overwrite=False))["created"]
        assert error(await act(call, "put", uri, data="two", overwrite=False))["code"] == "OBJECT_EXISTS"
        assert done(await act(call, "get", uri))["data"] == "one"
        done(await act(call, "put", uri, data="two"))
        assert done(await act(call, "get", uri))["data"] == "two"

    async def test_a_listing_gives_addresses_that_can_be_got(self, base: str, call: Call) -> None:
        names = ["in/a b.txt", "in/b.txt", "in/c/d.txt"]
        for name in (*names, "inner", "other"):
            done(await act(call, "put", base + name.replace(" ", "%20"), data=name, compress=False))
        found = done(await act(call, "list", f"{base}in/"))
        assert [done(await act(call, "get", entry["uri"]))["data"] for entry in found["objects"]] == names
        assert [entry["size_bytes"] for entry in found["objects"]] == [len(name) for name in names]
        assert done(await act(call, "list", f"{base}nothing/"))["objects"] == []
        part = done(await act(call, "list", f"{base}in/", limit=2))
        assert (part["count"], part["truncated"]) == (2, True)

    async def test_nothing_there_is_a_missing_reference(self, base: str, call: Call) -> None:
        said = error(await act(call, "get", f"{base}gone.json"))
        assert (said["kind"], said["code"], said["retryable"]) == ("missing_reference", "REFERENCE_NOT_AVAILABLE", True)
        assert f"{base}gone.json" in said["message"]

    async def test_what_was_changed_is_refused(self, base: str, call: Call) -> None:
        put = done(await act(call, "put", f"{base}a", data="one"))
        done(await act(call, "put", f"{base}a", data="two"))
        reference = {"uri": put["uri"], "meta": {"sha256": put["sha256"]}}
        assert error(await act(call, "get", None, result_ref=reference))["code"] == "DIGEST_MISMATCH"

    async def test_a_script_is_loaded_from_there(self, base: str, call: Call, auth: Any) -> None:
        done(await act(call, "put", f"{base}job.py", data="result = 7", compress=False))
        assert await load({"uri": f"{base}job.py", "source": {"auth": auth}}, call) == "result = 7"


async def act(call: Call, action: str, uri: str | None, tool: ArtifactTool = TOOL, **fields: Any) -> Outcome:
    asked = {"action": action, "uri": uri, **fields}
    return await tool.run(
        Call(kind="artifact", fields=asked, auth=call.auth, directory=call.directory, resolver=call.resolver)
    )


def done(outcome: Outcome) -> dict[str, Any]:
    assert outcome.error is None, outcome.error
    result: dict[str, Any] = outcome.result
    return result


def error(outcome: Outcome) -> dict[str, Any]:
    assert outcome.error is not None, outcome.result
    return outcome.error
