"""A bucket as the place that a spark task writes to, and as what others read."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from noetl.kernel.event import Json
from tests.contracts.test_addresses import credential
from tests.services.buckets import Bucket
from tests.services.moto import moto_bucket, moto_server
from tests.spark.test_tool import ORDERS, Desk, desk

__all__ = ["desk", "moto_bucket", "moto_server"]


@pytest.fixture
def auth(moto_bucket: Bucket) -> dict[str, Any]:
    return credential("s3", moto_bucket)


async def keys(bucket: Bucket) -> list[str]:
    store = await bucket.open()
    return [info.key async for info in store.list() if "_noetl/" not in info.key]


async def count(desk: Desk, said: Any, auth: Json) -> Json:
    sql = "SELECT count(*) AS n, sum(cents) AS c, max(region) AS r FROM back"
    return dict((await desk.result(inputs={"back": said}, sql=sql, auth=auth, key="reader"))["preview"][0])


async def test_what_was_written_is_said_exactly_and_read_by_its_reference(
    desk: Desk, moto_bucket: Bucket, auth: Json
) -> None:
    output = {"path": f"{moto_bucket.url}/some/orders", "format": "parquet", "partition_by": ["region"]}
    fields: Json = {"inputs": {"orders": {"rows": ORDERS}}, "sql": "SELECT * FROM orders"}
    fields |= {"output": output, "auth": auth}
    checks = [{"name": "few", "check": "cents < 95"}]
    made = await desk.result(**fields, expect=checks)
    written, store = made["written"], await moto_bucket.open("some/orders")
    assert (written["rows"], written["file_count"], written["to"]) == (10, 2, output["path"])
    for file in written["files"]:
        content = await store.get(file["path"])
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file["bytes"], file["sha256"])
    for said in (made["ref"], f"{output['path']}/", {"path": f"{output['path']}/region=*/*.parquet"}):
        assert await count(desk, said, auth) == {"n": 10, "c": 550, "r": "s"}
    # Killed after it was written and before that was recorded: the next delivery says the same, and writes nothing.
    before = await keys(moto_bucket)
    again = await desk.result(**fields, expect=checks)
    assert {**again, "plan": None} == {**made, "plan": None}
    assert await keys(moto_bucket) == before


async def test_modes(desk: Desk, moto_bucket: Bucket, auth: Json) -> None:
    async def write(mode: str, key: str) -> Json:
        output = {"path": f"{moto_bucket.url}/out/", "format": "csv", "mode": mode}
        sql = "SELECT 'x' AS region, 1 AS cents FROM range(2)"
        return await desk.result(sql=sql, output=output, auth=auth, key=key, partitions=1)

    await write("append", "a")
    await write("append", "b")
    await write("append", "b")
    assert (await count(desk, f"{moto_bucket.url}/out/", auth))["n"] == 4
    assert (await write("ignore", "c"))["written"]["skipped"] is True
    await write("overwrite", "d")
    assert (await count(desk, f"{moto_bucket.url}/out/", auth))["n"] == 2
    assert len(await keys(moto_bucket)) == 1
    output = {"path": f"{moto_bucket.url}/out", "mode": "error"}
    error = await desk.error(sql="SELECT 1 AS a", output=output, auth=auth, key="e")
    assert "has objects already" in error["message"]


async def test_a_check_that_fails_puts_nothing_there(desk: Desk, moto_bucket: Bucket, auth: Json) -> None:
    checks = [{"name": "up", "check": "a > 0", "on_fail": "fail"}]
    output = {"path": f"{moto_bucket.url}/out"}
    error = await desk.error(sql="SELECT -1 AS a", output=output, auth=auth, expect=checks)
    assert error["code"] == "EXPECTATION_FAILED"
    assert await keys(moto_bucket) == []
