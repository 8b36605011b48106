"""Whoever changes a ledger behind its back is found out, and the event is named."""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.e2e import forge
from tests.e2e.cli import CORPUS, FRAMES, FRAMES_LOG, ORDERS, ORDERS_LOG, Home, Result

MISMATCH = 4
ROOT = f"execution/{ORDERS}"
TELEMETRY = f"{ROOT}/telemetry"
STAGE = f"{ROOT}/stage/287011192575127552"

# Positions in the orders log, which was imported first.
PLACES = {"first": 1, "middle": 20, "in a stage": 58, "telemetry": 57, "seal": 68, "last": 87}
COLUMNS = [
    "position", "event_id", "tenant_id", "organization_id", "project_id", "execution_id", "stream_id",
    "stream_version", "aggregate_type", "aggregate_id", "event_type", "schema_name", "schema_version", "event_time",
    "ingest_time", "principal", "producer", "causation_id", "correlation_id", "idempotency_key", "parent_event_id",
    "prev_event_id", "command_id", "stage_id", "frame_id", "parent_execution_id", "node_name", "status", "attempt",
    "payload", "payload_ref", "meta", "envelope_checksum", "chain_hash",
]  # fmt: skip
SURFACES = ("execution", "stages", "frames", "commands", "business_objects", "loops")

Forgery = Callable[[Home], None]


def other(column: str, value: Any) -> Any:
    """A value that differs as little as its type allows, and that a careless reader might not trip over."""
    if column in ("position", "stream_version"):
        return 1000
    if value is None:
        return ABSENT.get(column, 1)
    if isinstance(value, int):
        return value ^ 1
    if column in ("payload", "meta"):
        return value[:-1] + ',"x":1}' if value != "{}" else '{"x":1}'
    if column in ("event_time", "ingest_time"):
        return value.replace("2026", "2025")
    return value[:-1] + ("0" if value[-1] != "0" else "1")


REF = {"uri": "noetl://acme/sales/payloads/sha256/" + "0" * 64, "sha256": "0" * 64, "media_type": "x", "bytes": 1}
ABSENT = {
    "payload_ref": json.dumps(REF, separators=(",", ":"), sort_keys=True),
    "chain_hash": "0" * 64,
    **dict.fromkeys(("correlation_id", "idempotency_key", "node_name", "status"), "x"),
}


def named(result: Result) -> set[str]:
    """Every event that a verification names."""
    document = result.document
    return {document["first_bad_event"], *(problem.get("event_id") for problem in document["problems"])} - {None}


def event_id_at(home: Home, position: int) -> str:
    with home.sql() as connection:
        return str(connection.execute("SELECT event_id FROM event WHERE position = ?", (position,)).fetchone()[0])


def test_every_column_is_tried(two_logs: Home) -> None:
    with two_logs.sql() as connection:
        assert [row[1] for row in connection.execute("PRAGMA table_info(event)")] == COLUMNS


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("column", COLUMNS)
def test_a_changed_column_is_found_and_the_event_named(
    column: str, place: str, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    position = PLACES[place]
    with home.sql() as connection:
        row = forge.record_at(connection, position)
    home.change((f"UPDATE event SET {column} = ? WHERE position = ?", (other(column, row[column]), position)))
    result = home.here(capsys, "verify", ORDERS, "--json")
    assert result.code == MISMATCH
    assert result.document["chain"] == "broken"
    accepted = {str(row["event_id"]), str(other("event_id", row["event_id"]))} if column == "event_id" else {
        str(row["event_id"])
    }  # fmt: skip
    assert accepted & named(result)


@pytest.mark.parametrize("column", ["payload", "principal", "stream_id", "event_type", "envelope_checksum"])
@pytest.mark.parametrize("place", ["first", "in a stage", "last"])
def test_a_byte_that_is_no_text_any_more_is_found(
    column: str, place: str, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    position = PLACES[place]
    home.change(
        f"UPDATE event SET {column} = CAST(substr(CAST({column} AS BLOB), 1, length({column}) - 1) || x'ff' AS TEXT) "
        f"WHERE position = {position}"
    )
    result = home.here(capsys, "verify", ORDERS, "--json")
    assert result.code == MISMATCH
    assert event_id_at(home, position) in named(result)


@pytest.mark.parametrize("column", ["tenant_id", "payload", "ingest_time", "envelope_checksum", "chain_hash"])
def test_a_changed_column_is_found_by_the_command(column: str, home: Home) -> None:
    position = PLACES["middle"]
    home.change(f"UPDATE event SET {column} = '0' || substr({column}, 2) WHERE position = {position}")
    result = home.run("verify", ORDERS)
    assert result.code == MISMATCH
    assert "MISMATCH" in result.stdout
    assert event_id_at(home, position) in result.stdout
    assert home.run("verify", "--all").code == MISMATCH


def test_the_other_execution_is_not_accused(home: Home) -> None:
    home.change("UPDATE event SET principal = 'user:eve' WHERE position = 87")
    assert home.run("verify", FRAMES).code == 0
    assert home.run("verify", ORDERS).code == MISMATCH


@pytest.mark.parametrize(
    ("position", "before", "after"),
    [
        (19, '":', '": '),
        (1, "{", "{ "),
        (58, ",", ", "),
        (87, "}", "} "),
    ],
)
def test_the_same_json_in_other_bytes_is_found(
    position: int, before: str, after: str, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    with home.sql() as connection:
        payload = forge.record_at(connection, position)["payload"]
    respelt = payload.replace(before, after, 1)
    assert respelt != payload
    assert json.loads(respelt) == json.loads(payload)
    home.change(("UPDATE event SET payload = ? WHERE position = ?", (respelt, position)))
    result = home.here(capsys, "verify", ORDERS, "--json")
    assert result.code == MISMATCH
    assert result.document["first_bad_event"] == event_id_at(home, position)


def test_a_number_spelt_otherwise_is_found(new_home: Home) -> None:
    """1.0 and 1.00 are the same number, and not the same bytes."""
    log = CORPUS / "business_objects.jsonl"
    new_home.json("import", log)
    with new_home.sql() as connection:
        position, payload = next(
            (place, text)
            for place, text in connection.execute("SELECT position, payload FROM event ORDER BY position")
            if json.loads(text) != {} and any(ch.isdigit() for ch in text)
        )
    respelt = _longer_number(payload)
    assert json.loads(respelt) == json.loads(payload)
    new_home.change(("UPDATE event SET payload = ? WHERE position = ?", (respelt, position)))
    result = new_home.run("verify", "--all", "--json")
    assert result.code == MISMATCH
    assert result.document["results"][0]["first_bad_event"] == event_id_at(new_home, position)


def _longer_number(payload: str) -> str:
    """The first bare number of a payload with a fraction of zeros, which reads as the same number."""
    value = json.loads(payload)

    def number(item: Any) -> str | None:
        if isinstance(item, dict | list):
            return next(filter(None, map(number, item.values() if isinstance(item, dict) else item)), None)
        return str(item) if isinstance(item, int | float) and not isinstance(item, bool) else None

    found = number(value)
    assert found is not None
    return payload.replace(f":{found}", f":{found}0" if "." in found else f":{found}.0", 1)


# --- The order of events ----------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["first", "middle", "in a stage", "telemetry", "seal", "last"])
def test_a_removed_event_is_found(place: str, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    position = PLACES[place]
    event_id = event_id_at(home, position)
    home.change(f"DELETE FROM event WHERE position = {position}")
    result = home.here(capsys, "verify", ORDERS, "--json")
    assert result.code == MISMATCH
    if place in ("first", "middle", "seal", "last"):
        assert event_id in named(result)
    assert home.here(capsys, "verify", "--all").code == MISMATCH


@pytest.mark.parametrize(("one", "two"), [(20, 21), (1, 87), (58, 59), (57, 61)])
def test_two_events_with_swapped_contents_are_found(
    one: int, two: int, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    with home.sql() as connection:
        first, second = forge.record_at(connection, one), forge.record_at(connection, two)
    home.change(f"DELETE FROM event WHERE position IN ({one}, {two})")
    marks = ", ".join("?" * len(first))
    home.change(
        (f"INSERT INTO event VALUES ({marks})", list({**second, "position": one}.values())),
        (f"INSERT INTO event VALUES ({marks})", list({**first, "position": two}.values())),
    )
    result = home.here(capsys, "verify", ORDERS, "--json")
    assert result.code == MISMATCH
    assert named(result) & {str(first["event_id"]), str(second["event_id"])}


def test_neighbours_of_different_streams_that_changed_places_are_found(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing in either stream shows it; the chain over the whole ledger does."""
    with home.sql() as connection:
        rows = connection.execute("SELECT position, stream_id FROM event ORDER BY position").fetchall()
    one, two = next((a[0], b[0]) for a, b in itertools.pairwise(rows) if a[1] != b[1])
    home.change(
        f"UPDATE event SET position = 1000000 WHERE position = {one}",
        f"UPDATE event SET position = {one} WHERE position = {two}",
        f"UPDATE event SET position = {two} WHERE position = 1000000",
    )
    result = home.here(capsys, "verify", "--all", "--json")
    assert result.code == MISMATCH
    assert "order in which they were committed" in str(result.document["ledger"]["problems"])


@pytest.mark.parametrize(("one", "two"), [(3, 11), (45, 46), (57, 61)])
def test_two_events_with_only_their_payloads_swapped_are_found(
    one: int, two: int, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    with home.sql() as connection:
        first, second = forge.record_at(connection, one), forge.record_at(connection, two)
    home.change(
        ("UPDATE event SET payload = ? WHERE position = ?", (second["payload"], one)),
        ("UPDATE event SET payload = ? WHERE position = ?", (first["payload"], two)),
    )
    result = home.here(capsys, "verify", ORDERS, "--json")
    assert result.code == MISMATCH
    assert {str(first["event_id"]), str(second["event_id"])} <= named(result)


@pytest.mark.parametrize("stream", [ROOT, STAGE, TELEMETRY])
def test_a_cut_tail_is_found(stream: str, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.change(
        f"DELETE FROM event WHERE position IN "
        f"(SELECT position FROM event WHERE stream_id = '{stream}' ORDER BY position DESC LIMIT 2)"
    )
    result = home.here(capsys, "verify", ORDERS, "--json")
    assert result.code == MISMATCH
    with home.sql() as connection:
        assert str(forge.head_of(connection, stream).event_id) in named(result)


def test_a_cut_tail_with_mended_heads_is_found_by_the_key(home: Home) -> None:
    """The last execution loses its end, and everything that needs no key is made to fit."""
    stream = f"execution/{FRAMES}"
    with home.sql() as connection:
        connection.execute("DELETE FROM event WHERE position > 124")
        connection.execute("DELETE FROM outbox WHERE position > 124")
        last = forge.record_at(connection, 124)
        moved = {"version": last["stream_version"], "event_id": last["event_id"], "ingest_time": last["ingest_time"]}
        head = forge.head_of(connection, stream)
        forge.move_head(
            connection,
            msgspec.structs.replace(head, **moved, count=head.count - 2, chain_hash=last["chain_hash"]),
        )
        forge.move_ledger(connection)
        connection.execute("UPDATE projection_checkpoint SET position = 124")
    (home.path / "ledger.anchor").unlink()
    result = home.run("verify", FRAMES, "--json")
    assert result.code == MISMATCH
    assert "MAC" in result.stdout
    everything = home.run("verify", "--all", "--json")
    assert everything.code == MISMATCH
    assert "MAC" in json.dumps(everything.document["ledger"])


@pytest.mark.parametrize("stream", [ROOT, STAGE, TELEMETRY])
def test_a_stream_without_its_events_is_found(stream: str, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.change(f"DELETE FROM event WHERE stream_id = '{stream}'")
    result = home.here(capsys, "verify", ORDERS, "--json")
    assert result.code == MISMATCH
    assert any(problem.get("stream_id") == stream for problem in result.document["problems"])


@pytest.mark.parametrize("stream", [ROOT, STAGE, TELEMETRY])
def test_a_stream_deleted_with_its_head_is_found(stream: str, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.change(
        f"DELETE FROM event WHERE stream_id = '{stream}'", f"DELETE FROM stream_head WHERE stream_id = '{stream}'"
    )
    assert home.here(capsys, "verify", ORDERS).code == MISMATCH
    assert home.here(capsys, "verify", "--all").code == MISMATCH


def delete_all_traces(home: Home) -> None:
    home.change(
        f"DELETE FROM event WHERE execution_id = {ORDERS}",
        f"DELETE FROM stream_head WHERE stream_id = '{ROOT}' OR stream_id LIKE '{ROOT}/%'",
        f"DELETE FROM projection WHERE root = '{ROOT}'",
        f"DELETE FROM idempotency WHERE key LIKE '%{ORDERS}%'",
    )


def test_an_execution_deleted_with_all_its_traces_is_missed(home: Home) -> None:
    delete_all_traces(home)
    everything = home.run("verify", "--all", "--json")
    assert everything.code == MISMATCH
    assert "3 streams, its head says 6" in json.dumps(everything.document["ledger"])
    result = home.run("verify", ORDERS)
    assert result.code == MISMATCH
    assert f"no execution {ORDERS}" in result.stderr


def test_a_deletion_with_a_mended_ledger_head_is_found_by_the_key(home: Home) -> None:
    delete_all_traces(home)
    with home.sql() as connection:
        connection.execute("UPDATE event SET position = position - 87")
        forge.move_ledger(connection)
        connection.execute("UPDATE projection_checkpoint SET position = 39")
    (home.path / "ledger.anchor").unlink()
    result = home.run("verify", "--all", "--json")
    assert result.code == MISMATCH
    assert "MAC" in json.dumps(result.document["ledger"])
    assert home.run("verify", ORDERS).code == MISMATCH


def test_an_execution_that_never_was_is_not_a_mismatch(two_logs: Home) -> None:
    result = two_logs.run("verify", "17")
    assert result.code == 2
    assert "there is no execution 17" in result.stderr


# --- Forgeries --------------------------------------------------------------------------------------------


def test_a_well_chained_forgery_is_found_by_the_key(home: Home) -> None:
    with home.sql() as connection:
        forged = forge.append(connection, ROOT, principal="user:eve")
    result = home.run("verify", ORDERS, "--json")
    assert result.code == MISMATCH
    assert str(forged) in named(result)
    assert "MAC" in result.stdout
    assert home.run("verify", "--all").code == MISMATCH


def test_a_rewritten_history_is_found_by_the_key(home: Home) -> None:
    """One event in the middle says something else, and every hash after it has been made to fit."""
    with home.sql() as connection:
        forge.rechain(connection, ROOT, 20, principal="user:eve")
    result = home.run("verify", ORDERS, "--json")
    assert result.code == MISMATCH
    assert "MAC" in result.stdout


def test_without_the_key_the_same_forgery_passes_and_verify_says_so(home: Home) -> None:
    with home.sql() as connection:
        forge.append(
            connection, ROOT, event_type="model.checkpointed", schema_name="noetl.model.checkpointed", payload="{}"
        )
    home.key.unlink()
    result = home.run("verify", ORDERS, "--json")
    assert (result.document["chain"], result.document["keyed"]) == ("ok", False)


HEAD_CHANGES = {
    "version": "version + 1",
    "event_id": "event_id + 1",
    "count": "count + 1",
    "chain_hash": "'" + "0" * 64 + "'",
    "ingest_time": "'2026-01-01T00:00:00.000000Z'",
    "sealed": "1 - sealed",
    "mac": "'" + "0" * 64 + "'",
}


@pytest.mark.parametrize("stream", [ROOT, STAGE, TELEMETRY])
@pytest.mark.parametrize("column", [*HEAD_CHANGES, "mac gone", "tenant_id"])
def test_a_changed_stream_head_is_found(
    column: str, stream: str, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    change = {"mac gone": "mac = NULL", "tenant_id": "tenant_id = 'eve'"}.get(column)
    home.change(f"UPDATE stream_head SET {change or f'{column} = {HEAD_CHANGES[column]}'} WHERE stream_id = '{stream}'")
    assert home.here(capsys, "verify", ORDERS).code == MISMATCH
    assert home.here(capsys, "verify", "--all").code == MISMATCH


@pytest.mark.parametrize(
    "change",
    ["position = position - 1", "position = position + 1", "streams = streams + 1", "total = '" + "0" * 64 + "'",
     "mac = '" + "0" * 64 + "'", "mac = NULL", "key_id = 'feedfeedfeedfeed'", "key_id = NULL, mac = NULL"],
)  # fmt: skip
def test_a_changed_ledger_head_is_found(change: str, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.change(f"UPDATE ledger_head SET {change}")
    assert home.here(capsys, "verify", "--all").code == MISMATCH


def test_a_ledger_without_its_head_is_found(home: Home) -> None:
    home.change("DELETE FROM ledger_head")
    assert home.run("verify", "--all").code == MISMATCH


# --- Projections ------------------------------------------------------------------------------------------


def row_of(home: Home, surface: str) -> tuple[str, dict[str, Any]]:
    with home.sql() as connection:
        row_id, text = connection.execute(
            "SELECT row_id, row FROM projection WHERE surface = ? AND root = ? ORDER BY row_id LIMIT 1", (surface, ROOT)
        ).fetchone()
    return row_id, json.loads(text)


def put_row(home: Home, surface: str, row_id: str, text: str) -> None:
    home.change(
        ("UPDATE projection SET row = ? WHERE surface = ? AND root = ? AND row_id = ?", (text, surface, ROOT, row_id))
    )


@pytest.mark.parametrize("surface", SURFACES)
def test_a_changed_projection_row_is_found_by_surface_row_and_field(surface: str, home: Home) -> None:
    row_id, row = row_of(home, surface)
    put_row(home, surface, row_id, json.dumps({**row, "status": "LOST"}, separators=(",", ":"), sort_keys=True))
    result = home.run("verify", ORDERS, "--json")
    assert result.code == MISMATCH
    assert (result.document["chain"], result.document["parity"]) == ("ok", False)
    [difference] = result.document["differences"]
    assert difference == {
        "surface": surface, "row": row_id, "field": "status", "live": "LOST", "replayed": row["status"]
    }  # fmt: skip
    assert result.document["live_bundle"][surface] != result.document["replayed_bundle"][surface]
    shown = home.run("verify", ORDERS)
    assert shown.code == MISMATCH
    assert all(word in shown.stdout for word in (surface, row_id, "status", "LOST"))


@pytest.mark.parametrize("surface", SURFACES)
def test_every_field_of_a_projection_row_counts(surface: str, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    row_id, row = row_of(home, surface)
    for field in row:
        put_row(home, surface, row_id, json.dumps({**row, field: "other"}, separators=(",", ":"), sort_keys=True))
        result = home.here(capsys, "verify", ORDERS, "--json")
        assert result.code == MISMATCH
        assert {(item["row"], item["field"]) for item in result.document["differences"]} == {(row_id, field)}


@pytest.mark.parametrize("surface", SURFACES)
def test_a_deleted_projection_row_is_found(surface: str, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    row_id, _ = row_of(home, surface)
    home.change(f"DELETE FROM projection WHERE surface = '{surface}' AND root = '{ROOT}' AND row_id = '{row_id}'")
    result = home.here(capsys, "verify", ORDERS, "--json")
    assert result.code == MISMATCH
    assert [(item["surface"], item["row"]) for item in result.document["differences"]] == [(surface, row_id)]


@pytest.mark.parametrize("surface", [*SURFACES, "ghosts"])
def test_an_added_projection_row_is_found(surface: str, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.change(
        "INSERT INTO projection (surface, root_number, root, tenant_id, row_id, version, row) "
        f"VALUES ('{surface}', {ORDERS}, '{ROOT}', 'acme', '17', 87, '{{}}')"
    )
    result = home.here(capsys, "verify", ORDERS, "--json")
    assert result.code == MISMATCH
    assert [(item["surface"], item["row"]) for item in result.document["differences"]] == [(surface, "17")]


@pytest.mark.parametrize("surface", SURFACES)
def test_a_projection_row_in_other_bytes_is_found(surface: str, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    row_id, row = row_of(home, surface)
    put_row(home, surface, row_id, json.dumps(row, sort_keys=True))
    result = home.here(capsys, "verify", ORDERS, "--json")
    assert result.code == MISMATCH
    assert [(item["surface"], item["row"]) for item in result.document["differences"]] == [(surface, row_id)]


@pytest.mark.parametrize("change", ["root = 'execution/17'", "row_id = '17'", "surface = 'x'", "tenant_id = 'eve'",
                                    "root_number = 17"])  # fmt: skip
def test_a_misplaced_projection_row_is_found(change: str, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    row_id, _ = row_of(home, "loops")
    home.change(f"UPDATE projection SET {change} WHERE surface = 'loops' AND root = '{ROOT}'")
    result = home.here(capsys, "verify", ORDERS, "--json")
    assert result.code == MISMATCH
    assert ("loops", row_id) in {(item["surface"], item["row"]) for item in result.document["differences"]}


def test_another_execution_that_claims_the_id_changes_nothing(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """The row that says which tenant an execution is in may itself be a lie."""
    home.change(
        f"""UPDATE projection SET row = json_set(row, '$.execution_id', {ORDERS})
            WHERE surface = 'execution' AND root = 'execution/{FRAMES}'"""
    )
    assert home.here(capsys, "verify", ORDERS).code == 0
    assert home.here(capsys, "verify", FRAMES).code == MISMATCH


@pytest.mark.parametrize("position", [0, 40, 86])
def test_a_projector_that_claims_to_be_behind_is_found(
    position: int, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home.change(f"UPDATE projection_checkpoint SET position = {position}")
    assert home.here(capsys, "verify", ORDERS).code == MISMATCH


# --- Keys and copies --------------------------------------------------------------------------------------


def test_without_the_key_an_intact_ledger_is_unkeyed_and_ok(home: Home) -> None:
    home.key.unlink()
    result = home.run("verify", ORDERS, "--json")
    assert (result.code, result.document["keyed"], result.document["chain"]) == (0, False, "ok")
    everything = home.run("verify", "--all")
    assert everything.code == 0
    assert "unkeyed" in everything.stdout


@pytest.mark.parametrize("position", [1, 20, 58, 87])
def test_without_the_key_a_broken_chain_is_still_found(
    position: int, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home.key.unlink()
    home.change(f"UPDATE event SET principal = 'user:eve' WHERE position = {position}")
    result = home.here(capsys, "verify", ORDERS, "--json")
    assert (result.code, result.document["keyed"]) == (MISMATCH, False)
    assert event_id_at(home, position) in named(result)


def test_a_wrong_key_is_said_to_be_one(home: Home) -> None:
    home.key.write_text(secrets.token_hex(32), encoding="ascii")
    result = home.run("verify", "--all")
    assert result.code == MISMATCH
    assert "sealed with another key" in result.stderr
    assert "restore the wallet" in result.stderr


def test_an_old_copy_of_the_ledger_is_found(new_home: Home, tmp_path: Path) -> None:
    new_home.json("import", ORDERS_LOG)
    old = new_home.ledger.read_bytes()
    new_home.json("import", FRAMES_LOG)
    new_home.ledger.write_bytes(old)
    for target in ("--all", ORDERS):
        result = new_home.run("verify", target)
        assert result.code == MISMATCH
        assert "ends at position 87, but had reached 126" in result.stderr
    refused = new_home.run("import", FRAMES_LOG)
    assert refused.code == MISMATCH
    assert new_home.ledger.read_bytes() == old


@pytest.mark.parametrize("content", [b"", None])
def test_a_ledger_that_is_gone_is_found(content: bytes | None, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.ledger.unlink()
    if content is not None:
        home.ledger.write_bytes(content)
    before = home.fingerprint()
    for args in (("verify", "--all"), ("verify", ORDERS), ("list",), ("import", str(ORDERS_LOG))):
        result = home.here(capsys, *args)
        assert (args, result.code) == (args, MISMATCH)
        assert "but had events" in result.stderr
    assert home.fingerprint() == before


# --- Leaving no trace -------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["", "UPDATE event SET principal = 'eve' WHERE position = 20",
                                    "UPDATE projection SET row = '{}' WHERE surface = 'loops'"])  # fmt: skip
def test_verify_changes_nothing(damage: str, home: Home) -> None:
    if damage:
        home.change(damage)
    before = home.fingerprint()
    home.run("verify", ORDERS)
    home.run("verify", "--all", "--json")
    assert home.fingerprint() == before
