"""Tenants do not see each other: over every operation of the API, with all that a stranger can know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from noetl.errors import NoetlError, NotFound
from noetl.kernel.names import PayloadName, parse
from tests.e2e.strangers import MARK, OTHER, OWNER, Estate, estate_in, operations, twin_of
from tests.e2e.walks import ABOUT_THEMSELVES, walk

_OF_EXECUTIONS = "|".join(
    (r"\{execution_id\}", "^/api/executions$", "^/api/(result|temp|replay|aggregate|context)", r"\{request_id\}",
     "/commands/", "/stages/")
)  # fmt: skip


@pytest.fixture
async def estate(tmp_path: Path) -> AsyncIterator[Estate]:
    async with estate_in(tmp_path) as opened:
        yield opened


@pytest.fixture
async def far(tmp_path: Path) -> AsyncIterator[Estate]:
    """One whose commands are for workers of other processes."""
    async with estate_in(tmp_path, lease=30.0) as opened:
        yield opened


async def test_the_walk_knows_every_operation(estate: Estate) -> None:
    found = {str(one) for one in operations(estate.app)}
    assert len(found) > 60
    assert found >= ABOUT_THEMSELVES


async def test_the_owner_is_answered_what_strangers_must_not_be(estate: Estate) -> None:
    """What the walk looks for is there to be found."""
    async with estate.caller(await estate.token(OWNER, "admin", name="own")) as owner:
        wrong = await walk(estate, owner)
    told = [line for line in wrong if " tells: " in line]
    assert len(told) > 15, told
    for place in ("/events", "/logs", "/status", "/vars/", "/catalog/", "/credentials", "/keychain/", "/result/"):
        assert any(place in line for line in told), place


@pytest.mark.parametrize("role", ["reader", "operator", "admin"])
async def test_another_tenant_is_told_nothing_and_changes_nothing(estate: Estate, role: str) -> None:
    before = await estate.belongings(OWNER)
    async with estate.caller(await estate.token(OTHER, role)) as stranger:
        assert await walk(estate, stranger) == []
    assert await estate.belongings(OWNER) == before


async def test_nor_where_commands_are_for_workers(far: Estate) -> None:
    before = await far.belongings(OWNER)
    async with far.caller(await far.token(OTHER, "admin")) as stranger:
        assert await walk(far, stranger) == []
    assert await far.belongings(OWNER) == before


async def test_an_execution_of_the_same_id_gives_no_sight_of_the_other(estate: Estate) -> None:
    await twin_of(estate, OTHER[0])
    before = await estate.belongings(OWNER)
    async with estate.caller(await estate.token(OTHER, "admin")) as stranger:
        assert await walk(estate, stranger, has_a_twin=True) == []
    assert await estate.belongings(OWNER) == before


async def test_another_organisation_is_told_nothing_of_executions(estate: Estate) -> None:
    """The catalog and credentials are the tenant's, and so are bytes by their digest; what ran is not."""
    estate.known["payload"] = estate.known["result"]
    before = await estate.belongings(OWNER)
    async with estate.caller(await estate.token((OWNER[0], "labs"), "admin", name="labs")) as stranger:
        assert await walk(estate, stranger, only=_OF_EXECUTIONS) == []
        assert (await stranger.get("/api/executions")).json()["executions"] == []
        shared = await stranger.post("/api/catalog/resource", json={"path": estate.known["path"]})
        assert shared.status_code == 200
    after = await estate.belongings(OWNER)
    assert [head for head in after[0] if head not in before[0]] == [
        head for head in after[0] if head.stream_id == f"tenant/{OWNER[0]}"
    ], "a token was made, and nothing else"


async def test_a_stream_of_the_other_says_nothing(estate: Estate) -> None:
    owner_token = await estate.token(OWNER, "operator", name="own")
    async with (
        estate.caller(await estate.token(OTHER, "reader")) as stranger,
        estate.caller(owner_token) as owner,
    ):
        listening = {
            "stranger": asyncio.create_task(stranger.get("/api/stream", params={"after": 0})),
            "owner": asyncio.create_task(owner.get("/api/stream", params={"after": 0})),
        }
        started = (await owner.post("/api/execute", json={"path": estate.known["path"]})).json()["execution_id"]
        await owner.get(f"/api/executions/{started}/stream")
        estate.app.state.closing.set()
        heard = {name: (await task).text for name, task in listening.items()}
    assert started not in heard["stranger"]
    assert MARK not in heard["stranger"]
    assert estate.known["execution_id"] in heard["owner"]


async def test_bytes_of_a_tenant_are_under_its_own_prefix(estate: Estate) -> None:
    objects = estate.embedded.objects
    marked = [item.key async for item in objects.list("") if MARK.encode() in await objects.get(item.key)]
    assert marked
    assert [key for key in marked if OWNER[0] not in key.replace("=", "/").split("/")] == []


async def test_bytes_of_a_tenant_are_read_under_no_other_name(estate: Estate) -> None:
    ours, theirs = (estate.embedded.payloads.of_tenant(tenant) for tenant in (OWNER[0], OTHER[0]))
    name = parse(estate.known["payload"])
    assert isinstance(name, PayloadName)
    ref = await ours.ref_of(name)
    assert MARK.encode() in await ours.fetch(ref)
    with pytest.raises(NoetlError):
        await theirs.fetch(ref)
    with pytest.raises(NotFound):
        await theirs.ref_of(msgspec.structs.replace(name, tenant=OTHER[0]))
