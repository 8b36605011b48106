"""Evidence is given of what is there: as a whole, of one moment, and also of what does not hold."""

from __future__ import annotations

import errno
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from noetl.errors import Conflict, Corruption, InvalidInput, NotFound, StorageFull, Unavailable
from noetl.kernel.tail import Stream
from noetl.payloads.store import payload_key
from noetl.ports.projections import ProjectionRow
from noetl.replay.evidence import check_evidence
from noetl.replay.evidence.artefacts import FILES
from noetl.replay.service import Cutoff
from tests.unit.kernel.drafts import STREAM, draft
from tests.unit.replay.evidence.given import a_run, writer_of
from tests.unit.replay.shop import Shop


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def stored(shop: Shop, surface: str) -> ProjectionRow:
    return (await shop.projections.load(STREAM, surface=surface))[0]


async def put(shop: Shop, row: ProjectionRow, data: bytes) -> None:
    """A row as somebody has changed it behind our back."""
    there = await shop.projections.load(STREAM)
    rows = [msgspec.structs.replace(one, row=data if one == row else one.row) for one in there]
    await shop.projections.replace(STREAM, rows, at=("embedded", await shop.projections.checkpoint("embedded")))


def names_in(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def document(directory: Path, role: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / FILES[role]).read_text())
    return found


async def test_both_sides_and_the_payloads_are_written_down(shop: Shop, tmp_path: Path) -> None:
    given = await writer_of(shop).write(await a_run(shop), tmp_path / "evidence")
    replayed = await shop.replayer.replay(STREAM)
    assert given.ok
    assert given.checksum == replayed.checksum() == check_evidence(tmp_path / "evidence").checksum
    state, live = (document(tmp_path / "evidence", role) for role in ("replay_state", "live_rows"))
    assert state["rows"] == live["rows"]
    assert state["projection_checksums"] == replayed.bundle()
    assert live["rows"]["commands"][0]["command_id"] == 9
    assert live["adapter"] == {"name": "memory", "projector": "embedded"}
    assert [one["error"] for one in document(tmp_path / "evidence", "payload_resolution")["rows"]["payloads"]] == [None]


async def test_many_rows_go_through_page_by_page(shop: Shop, tmp_path: Path) -> None:
    """Ids are in the order of their text, as stores give them."""
    await shop.write(draft("playbook.initialized", payload={"path": "sales/daily"}))
    await shop.write(*[draft("command.issued", command_id=number, node_name="s") for number in range(1, 2301)])
    await shop.projector.catch_up()
    given = await writer_of(shop).write(STREAM, tmp_path / "evidence")
    assert (given.ok, given.rows) == (True, 2301)
    assert check_evidence(tmp_path / "evidence").ok


async def test_a_row_that_was_changed_is_evidence_of_a_mismatch(shop: Shop, tmp_path: Path) -> None:
    await a_run(shop)
    row = await stored(shop, "commands")
    await put(shop, row, row.row.replace(b"load", b"lead"))
    given = await writer_of(shop).write(STREAM, tmp_path / "evidence")
    assert (given.ok, given.parity, given.chain, given.resolved) == (False, False, True, True)
    found = [str(problem) for problem in check_evidence(tmp_path / "evidence").problems]
    assert found == [
        "parity.json, surfaces.commands: live and replayed rows differ",
        'parity.json, differences[0]: commands row 9, field \'step\': live "lead", replayed "load"',
        "manifest.json, steps[4].return_code: is 4: 'parity' does not hold",
    ]


async def test_rows_that_are_gone_or_too_many_are_told(shop: Shop, tmp_path: Path) -> None:
    await a_run(shop)
    row = await stored(shop, "commands")
    await put(shop, row, row.row)
    rows = [one for one in await shop.projections.load(STREAM) if one.surface != "commands"]
    await shop.projections.replace(STREAM, rows, at=("embedded", await shop.projections.checkpoint("embedded")))
    assert not (await writer_of(shop).write(STREAM, tmp_path / "evidence")).parity
    [difference] = document(tmp_path / "evidence", "parity")["differences"]
    assert (difference["surface"], difference["row"], difference["live"]) == ("commands", "9", None)
    assert not check_evidence(tmp_path / "evidence").ok


@pytest.mark.parametrize("data", [b"not JSON", b'{"command_id": 9}', b'{"command_id":10}', b"[]"])
async def test_a_row_that_is_none_any_more_stops_it(data: bytes, shop: Shop, tmp_path: Path) -> None:
    await a_run(shop)
    await put(shop, await stored(shop, "commands"), data)
    with pytest.raises(Corruption, match="commands row 9 of execution/4101 is not as it was written"):
        await writer_of(shop).write(STREAM, tmp_path / "evidence")
    assert names_in(tmp_path) == []


async def test_a_payload_that_is_gone_is_evidence_of_that(shop: Shop, tmp_path: Path) -> None:
    await a_run(shop)
    [(_, summary)] = [one async for one in shop.replayer.payloads(STREAM)]
    await shop.objects.delete(payload_key("acme", summary.sha256))
    given = await writer_of(shop).write(STREAM, tmp_path / "evidence")
    assert (given.ok, given.resolved, given.parity) == (False, False, True)
    found = [str(problem) for problem in check_evidence(tmp_path / "evidence").problems]
    assert found[0] == f"payload-resolution.json, rows.payloads[0].error: {summary.uri}: missing"


async def test_rows_that_are_behind_are_compared_with_the_log_as_it_was_then(shop: Shop, tmp_path: Path) -> None:
    await a_run(shop)
    await shop.write(draft())
    given = await writer_of(shop).write(STREAM, tmp_path / "evidence")
    assert (given.ok, given.scope.position, given.events) == (True, 6, 6)
    assert document(tmp_path / "evidence", "replay_state")["log"]["events"] == 7
    assert given.checksum == (await shop.replayer.replay(STREAM, Cutoff(position=6))).checksum()


async def test_an_execution_that_goes_on_meanwhile_is_looked_at_again(shop: Shop, tmp_path: Path) -> None:
    await a_run(shop)
    moves = 1
    page = shop.projections.page

    async def moving(root: Stream, surface: str, *, after: str = "", limit: int = 1000) -> Sequence[ProjectionRow]:
        nonlocal moves
        found = await page(root, surface, after=after, limit=limit)
        if moves and surface == "stages":
            moves -= 1
            await shop.write(draft())
            await shop.projector.catch_up()
        return found

    shop.projections.page = moving  # type: ignore[method-assign]
    given = await writer_of(shop).write(STREAM, tmp_path / "evidence")
    assert (given.ok, given.events) == (True, 7)
    moves = 100
    with pytest.raises(Conflict, match="goes on while its rows are read"):
        await writer_of(shop).write(STREAM, tmp_path / "second")
    assert names_in(tmp_path) == ["evidence"]


async def test_what_is_there_is_refused_before_anything_is_read(shop: Shop, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is there already"):
        await writer_of(shop).write(STREAM, tmp_path)


async def test_evidence_is_of_executions_that_there_are(shop: Shop, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="'tenant/acme' is not an execution"):
        await writer_of(shop).write(Stream("acme", "tenant/acme"), tmp_path / "evidence")
    with pytest.raises(NotFound):
        await writer_of(shop).write(STREAM, tmp_path / "evidence")
    assert names_in(tmp_path) == []


async def test_a_full_disk_and_a_store_that_is_away_leave_nothing(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await a_run(shop)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("noetl.payloads.directories.os.fsync", full)
        with pytest.raises(StorageFull):
            await writer_of(shop).write(STREAM, tmp_path / "evidence")

    async def away(*_: object, **__: object) -> None:
        raise Unavailable("the store does not answer")

    with monkeypatch.context() as patched:
        patched.setattr("noetl.replay.service.summarise", away)
        with pytest.raises(Unavailable):
            await writer_of(shop).write(STREAM, tmp_path / "evidence")
    assert names_in(tmp_path) == []


async def test_a_clock_that_goes_back_gives_no_step_of_negative_length(shop: Shop, tmp_path: Path) -> None:
    await a_run(shop)
    page = shop.projections.page

    async def late(root: Stream, surface: str, *, after: str = "", limit: int = 1000) -> Sequence[ProjectionRow]:
        shop.clock.advance(-5)
        return await page(root, surface, after=after, limit=limit)

    shop.projections.page = late  # type: ignore[method-assign]
    await writer_of(shop).write(STREAM, tmp_path / "evidence")
    assert check_evidence(tmp_path / "evidence").ok
