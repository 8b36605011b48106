"""A lake is what it says, or the first thing that is not is named."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noetl.data.lake.checking import Verified, verify
from noetl.data.lake.compacting import part_of
from noetl.data.lake.layout import SCHEMA
from noetl.data.lake.log import Lake
from noetl.data.lake.reading import read_file
from noetl.data.lake.repairing import repair
from noetl.data.lake.writing import append as add
from noetl.data.lake.writing import write_piece
from noetl.data.source.events import Span, batches
from noetl.data.source.log import LogSpec, open_log, url_of_home
from tests.unit.data.source.conftest import Append

NOW = 1_800_000_000_000_000


@pytest.fixture
def spec(home: Path) -> LogSpec:
    return LogSpec(url_of_home(home))


@pytest.fixture
def full(lake: Lake, append: Append, spec: LogSpec) -> Lake:
    """A copy of a ledger with two tenants."""
    for execution in range(1, 5):
        append(10, execution=execution)
    append(5, execution=5, tenant="other")
    with open_log(spec) as log:
        for after, to in ((0, 18), (18, 30), (30, 45)):
            add(lake, batches(log, SCHEMA, (), Span(after, to)), now=NOW)
    return lake


def said(found: Verified) -> list[str]:
    return [problem.what for problem in found.problems]


def replaced(lake: Lake, number: int, table: pa.Table) -> None:
    """What somebody would do who can write the lake's log too."""
    file = lake.files()[number]
    new = write_piece(lake.path, part_of(file), table, 9)
    lake.compact([new], [file], now=NOW)


def test_a_lake_that_holds(full: Lake, spec: LogSpec) -> None:
    found = verify(full, spec)
    assert (said(found), found.rows, found.head, found.ledger) == ([], 45, 45, 45)
    assert (dict(found.tenants), found.commits, found.files) == ({"acme": 40, "other": 5}, 3, len(full.files()))
    offline = verify(full, None)
    assert (said(offline), offline.ledger) == ([], None)


def test_a_changed_file_is_named_and_made_again(full: Lake, spec: LogSpec) -> None:
    file = full.files()[1]
    place = full.place(file)
    data = bytearray(place.read_bytes())
    data[len(data) // 2] ^= 1
    place.write_bytes(data)
    gone = full.files()[2]
    full.place(gone).unlink()
    found = verify(full, spec)
    assert [one for one in said(found) if one.startswith("events/")] == said(found)
    assert f"{file.path}: its sha256 is" in "".join(said(found))
    assert f"{gone.path}: it is not there" in said(found)
    done = repair(full, spec, found.damaged)
    assert [one.why_not for one in done] == [None, None]
    assert said(verify(full, spec)) == []
    assert full.head() == 45


def test_what_the_ledger_does_not_have_any_more_cannot_be_made_again(full: Lake, spec: LogSpec, home: Path) -> None:
    file = full.files()[0]
    full.place(file).unlink()
    with sqlite3.connect(home / "ledger.db") as other:
        other.execute("DELETE FROM event WHERE position = ?", (file.first_position,))
    other.close()
    (done,) = repair(full, spec, [file])
    assert done.why_not == f"the ledger has {file.rows - 1} of its {file.rows} events; the others have left it"
    assert file.path in {one.path for one in full.files()}


def test_a_forged_event_is_found_even_if_the_log_names_it(full: Lake, spec: LogSpec) -> None:
    table = read_file(full, full.files()[0])
    line = table["envelope"][0].as_py().replace(b'"step.enter"', b'"step.other"')
    replaced(full, 0, table.set_column(table.schema.get_field_index("envelope"), SCHEMA.field("envelope"),
                                       pa.array([line, *table["envelope"].to_pylist()[1:]], pa.binary())))  # fmt: skip
    assert any("does not have its checksum" in one for one in said(verify(full, None)))


def test_rows_that_are_missing_double_or_in_disorder_are_named(full: Lake, spec: LogSpec) -> None:
    table = read_file(full, full.files()[0])
    replaced(full, 0, table.take([0, *range(table.num_rows - 1)]))
    found = said(verify(full, None))
    first, last = table["position"][0].as_py(), table["position"][-1].as_py()
    assert f"position {first} is there 2 times" in found
    assert f"position {last} is missing" in found
    assert any("is not in order" in one for one in found)


def test_a_chain_that_does_not_go_on_is_named(full: Lake, spec: LogSpec) -> None:
    file = next(file for file in full.files() if file.rows > 3)
    table = read_file(full, file)
    replaced(full, full.files().index(file), table.take([0, 1, 1, *range(3, table.num_rows)]))
    assert any("does not follow the one before it in execution/" in one for one in said(verify(full, None)))


def test_events_that_are_not_the_ledgers_are_named(full: Lake, spec: LogSpec, home: Path) -> None:
    with sqlite3.connect(home / "ledger.db") as other:
        other.execute("UPDATE event SET envelope_checksum = ? WHERE position = 7", ("0" * 64,))
        other.execute("DELETE FROM event WHERE position = 9")
    other.close()
    found = [one.split(": ")[1] for one in said(verify(full, spec))]
    assert sorted(found) == [
        "the event at position 7 is not the one of the ledger",
        "the event at position 9 is not in the ledger",
    ]


def test_events_that_have_left_the_ledger_are_compared_with_what_it_has_kept_of_them(
    full: Lake, spec: LogSpec, home: Path
) -> None:
    with sqlite3.connect(home / "ledger.db") as other:
        rows = other.execute("SELECT envelope_checksum FROM event WHERE position BETWEEN 5 AND 8 ORDER BY position")
        checksums = b"".join(bytes.fromhex(checksum) for (checksum,) in rows)
        other.execute(
            "CREATE TABLE IF NOT EXISTS forgotten_run (first_position, last_position, tenant_id, root, checksums)"
        )
        other.execute("INSERT INTO forgotten_run VALUES (5, 8, 'acme', 'execution/1', ?)", (checksums,))
        other.execute("DELETE FROM event WHERE position BETWEEN 5 AND 8")
    other.close()
    assert said(verify(full, spec)) == []


def test_a_lake_of_another_ledger_says_so(full: Lake, spec: LogSpec, home: Path) -> None:
    with sqlite3.connect(home / "ledger.db") as other:
        other.execute("UPDATE event SET envelope_checksum = ? WHERE position = 45", ("0" * 64,))
    other.close()
    assert said(verify(full, spec)) == ["the event at position 45 of the lake is not the one of this ledger"]


def test_a_column_that_says_something_else_than_the_envelope_is_named(full: Lake) -> None:
    table = pq.read_table(full.place(full.files()[0]))
    index = table.schema.get_field_index("chain_hash")
    replaced(full, 0, table.set_column(index, "chain_hash", pa.array(["0" * 64] * table.num_rows)))
    assert any("other checksums in its columns" in one for one in said(verify(full, None)))
