"""What is wrong is said once, with its place and a way out; the exit code is right and the home is as it was."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from noetl.kernel.chain import extend, genesis
from noetl.kernel.event import Envelope, checksum_of, record_of
from tests.e2e.cli import CORPUS, FRAMES, FRAMES_LOG, ORDERS, ORDERS_LOG, Home, Result
from tests.e2e.conftest import LargeLog
from tests.scribe import event_of, line_of

USAGE, UNAVAILABLE, MISMATCH = 2, 3, 4
HELLO = CORPUS / "hello.jsonl"
FAILED = CORPUS / "failed.jsonl"

Edit = Callable[[list[bytes]], list[bytes]]


@contextmanager
def unchanged(home: Home) -> Iterator[None]:
    """Nothing in the home may differ afterwards."""
    before = home.fingerprint()
    yield
    assert home.fingerprint() == before


def refused(result: Result, code: int, *said: str) -> None:
    """One error of these words, no trace of Python, and nothing on standard output."""
    assert result.code == code, result
    assert result.stderr.lower().count("error: ") == 1
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    for words in said:
        assert words in result.stderr


def edited(path: Path, edit: Edit, source: Path = HELLO) -> Path:
    path.write_bytes(b"\n".join(edit(source.read_bytes().splitlines())) + b"\n")
    return path


def rechained(events: list[Envelope], index: int, **changes: Any) -> list[bytes]:
    """A log in which one event says something else and every hash fits: only its meaning is wrong."""
    events[index] = msgspec.structs.replace(events[index], **changes)
    chain = genesis(events[0].stream_id)
    for place, event in enumerate(events):
        checksum = checksum_of(record_of(event))
        chain = extend(chain, checksum)
        events[place] = msgspec.structs.replace(event, envelope_checksum=checksum, chain_hash=chain)
    return [line_of(event) for event in events]


def changed_event(index: int, **changes: Any) -> Edit:
    return lambda lines: rechained([event_of(line) for line in lines], index, **changes)


# --- Files ------------------------------------------------------------------------------------------------


def test_a_missing_file(home: Home) -> None:
    with unchanged(home):
        refused(home.run("import", "nowhere.jsonl"), USAGE, "there is no file nowhere.jsonl")


def test_an_empty_file(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "empty.jsonl"
    file.touch()
    with unchanged(home):
        refused(home.run("import", file), USAGE, f"{file} is empty")


def test_a_file_of_empty_lines(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "blank.jsonl"
    file.write_text("\n\n", encoding="ascii")
    with unchanged(home):
        refused(home.run("import", file), USAGE, f"{file} has no events")


def test_a_directory_in_place_of_a_file(home: Home, tmp_path: Path) -> None:
    with unchanged(home):
        refused(home.run("import", tmp_path), USAGE, f"cannot read {tmp_path}: Is a directory")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "secret.jsonl"
    shutil.copy(HELLO, file)
    file.chmod(0)
    with unchanged(home):
        refused(home.run("import", file), USAGE, f"cannot read {file}: Permission denied")


def test_a_file_that_cannot_be_read_to_its_end(home: Home) -> None:
    """A process's memory: it opens like a file, and the first byte is an error."""
    with unchanged(home):
        refused(home.run("import", "/proc/self/mem"), USAGE, "cannot read /proc/self/mem")


def test_random_bytes(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "random.jsonl"
    file.write_bytes(random.Random(7).randbytes(4096))
    with unchanged(home):
        refused(home.run("import", file), USAGE, f"{file}:1: not JSON", "one JSON object per line")


def test_a_file_that_is_no_log_makes_no_home(new_home: Home, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("milk, eggs\n", encoding="ascii")
    refused(new_home.run("import", file), USAGE, f"{file}:1: not JSON")
    assert not new_home.path.exists()


LINES: dict[str, tuple[Edit, int, tuple[str, ...]]] = {
    "garbage": (
        lambda lines: [*lines[:4], b"{nonsense", *lines[5:]],
        USAGE,
        (":5: not JSON", "one JSON object per line"),
    ),
    "not an object": (lambda lines: [*lines[:4], b"[1, 2]", *lines[5:]], USAGE, (":5: not an event",)),
    "a key twice": (
        lambda lines: [*lines[:2], b'{"event_id":1,' + lines[2][1:], *lines[3:]],
        USAGE,
        (":3: key 'event_id' appears twice",),
    ),
    "no checksum": (
        lambda lines: [*lines[:6], b'{"event_id":17}', *lines[7:]],
        USAGE,
        (":7: field 'envelope_checksum' is missing", "written by noetl export"),
    ),
    "a field of another type": (
        lambda lines: [lines[0].replace(b'"schema_version":1', b'"schema_version":"one"'), *lines[1:]],
        USAGE,
        (":1: not an event", "schema_version"),
    ),
    "one byte": (
        lambda lines: [*lines[:5], lines[5].replace(b"noetl.", b"noetk.", 1), *lines[6:]],
        MISMATCH,
        (":6: event ", "does not match its checksum", "the file was changed"),
    ),
    "a line removed": (
        lambda lines: lines[:5] + lines[6:],
        MISMATCH,
        (":6: version 7 of 'execution/", "follows version 5", "missing, repeated or out of order"),
    ),
    "two lines swapped": (
        lambda lines: [*lines[:4], lines[5], lines[4], *lines[6:]],
        MISMATCH,
        (":5: version 6 of 'execution/", "follows version 4"),
    ),
    "the first line removed": (lambda lines: lines[1:], MISMATCH, (":1: version 2 of", "follows version 0")),
    "a newer schema": (
        changed_event(3, schema_version=99),
        USAGE,
        (":4: event ", "field 'schema_version'", "version 99 has no upcaster to version 1", "upgrade noetl"),
    ),
    "a known event that makes no sense": (
        changed_event(2, payload={"kind": 17}),
        USAGE,
        (":3: event ", "field 'payload"),
    ),
    "a stream that is none": (
        lambda lines: [lines[0].replace(b'"stream_id":"execution/', b'"stream_id":"executions/'), *lines[1:]],
        USAGE,
        (":1:", "is not a stream"),
    ),
}


@pytest.mark.parametrize("fault", LINES)
def test_a_fault_in_a_line(fault: str, home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit, code, said = LINES[fault]
    file = edited(tmp_path / "log.jsonl", edit)
    with unchanged(home):
        refused(home.run("import", file), code, str(file), *said)
    assert home.here(capsys, "import", HELLO).code == 0


def test_a_fault_in_the_last_of_many_lines_leaves_nothing(home: Home, tmp_path: Path) -> None:
    file = edited(tmp_path / "log.jsonl", lambda lines: [*lines[:-1], lines[-1][:-40]], FAILED)
    with unchanged(home):
        refused(home.run("import", file), USAGE, f"{file}:17: not JSON")


def test_a_line_given_twice_is_harmless(new_home: Home, tmp_path: Path) -> None:
    file = edited(tmp_path / "log.jsonl", lambda lines: [*lines[:3], lines[2], *lines[3:]])
    assert (new_home.json("import", file))["present"] == 1


def test_a_history_that_differs(home: Home, tmp_path: Path) -> None:
    home.json("import", HELLO)
    file = edited(tmp_path / "other.jsonl", changed_event(4, principal="user:eve@acme.example"))
    with unchanged(home):
        refused(
            home.run("import", file),
            MISMATCH,
            f"{file}:5: event ",
            "the two histories differ",
            "import into another --home",
        )


def test_a_key_that_belongs_to_another_event(home: Home, tmp_path: Path) -> None:
    key = json.loads(ORDERS_LOG.read_bytes().splitlines()[0])["idempotency_key"]
    file = edited(tmp_path / "other.jsonl", changed_event(0, idempotency_key=key, tenant_id="acme"))
    same_tenant = [event_of(line) for line in file.read_bytes().splitlines()]
    file = edited(
        file, lambda _: rechained([msgspec.structs.replace(event, tenant_id="acme") for event in same_tenant], 0)
    )
    with unchanged(home):
        refused(home.run("import", file), MISMATCH, f"idempotency key '{key}'", "another --home")


# --- Feather ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def feather(two_logs: Home, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("feather") / "orders.feather"
    two_logs.json("export", ORDERS, "--format", "feather", "--out", file)
    return file


@pytest.mark.parametrize("kept", [0.05, 0.5, 0.99])
def test_a_feather_file_cut_short(kept: float, home: Home, feather: Path, tmp_path: Path) -> None:
    data = feather.read_bytes()
    file = tmp_path / "cut.feather"
    file.write_bytes(data[: int(len(data) * kept)])
    with unchanged(home):
        refused(home.run("import", file), USAGE, f"{file}: not a readable Arrow file", "cut short")


def test_a_feather_file_with_a_damaged_batch(new_home: Home, feather: Path, tmp_path: Path) -> None:
    """Whatever one damaged byte does to the file, nothing of it is taken as if it were whole."""
    data = feather.read_bytes()
    original = new_home.json("import", feather)
    assert original["imported"] == 87
    file = tmp_path / "damaged.feather"
    home = Home(tmp_path / "other")
    home.json("import", FRAMES_LOG)
    for place in range(3000, len(data) - 5000, len(data) // 6):
        file.write_bytes(data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :])
        with unchanged(home):
            result = home.run("import", file)
            assert result.code in (USAGE, MISMATCH), place
            assert str(file) in result.stderr
            assert "Traceback" not in result.stderr


def test_a_feather_file_with_other_columns(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "other.feather"
    table = pa.table({"event_id": [1], "name": ["x"]})
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with unchanged(home):
        refused(home.run("import", file), USAGE, f"{file}: not a log", "envelope_checksum")


def test_a_feather_file_with_nulls(home: Home, feather: Path, tmp_path: Path) -> None:
    file = tmp_path / "nulls.feather"
    with pa.memory_map(str(feather)) as source:
        table = pa.ipc.open_file(source).read_all()
    column = table.column("tenant_id").to_pylist()
    changed = table.set_column(
        table.schema.get_field_index("tenant_id"), "tenant_id", pa.array([*column[:9], None, *column[10:]], pa.string())
    )
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, changed.schema) as writer:
        writer.write_table(changed)
    with unchanged(home):
        refused(home.run("import", file), USAGE, f"{file}: row 10: not an event", "tenant_id")


def test_a_feather_file_of_another_type_of_column(home: Home, feather: Path, tmp_path: Path) -> None:
    file = tmp_path / "types.feather"
    with pa.memory_map(str(feather)) as source:
        table = pa.ipc.open_file(source).read_all()
    place = table.schema.get_field_index("ingest_time")
    texts = pa.array(["yesterday"] * table.num_rows)
    changed = table.set_column(place, "ingest_time", texts)
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, changed.schema) as writer:
        writer.write_table(changed)
    with unchanged(home):
        refused(home.run("import", file), USAGE, str(file))


# --- What is asked for ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        ["replay", "ID"],
        ["verify", "ID"],
        ["events", "ID"],
        ["events", "ID", "--follow"],
        ["export", "ID"],
        ["export", "ID", "--out", "x.jsonl"],
        ["diff", "ID", "--from", "1"],
    ],
)
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("17", "there is no execution 17"),
        ("tenant/nobody", "there is no stream tenant/nobody"),
        ("yesterday", "'yesterday' is not an execution id"),
        ("-5", "No such option '-5'"),
        ("007", "'007' is not an execution id"),
        ("99999999999999999999999", "is not an execution id"),
        ("executions/17", "'executions/17' is not an execution id or a stream"),
    ],
)
def test_an_id_that_is_not_there(
    call: list[str], name: str, said: str, two_logs: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    with unchanged(two_logs):
        result = two_logs.here(capsys, *(name if part == "ID" else part for part in call))
    assert result.code == USAGE
    assert result.stdout == ""
    assert said.lower() in result.stderr.lower()


def test_an_id_that_is_not_there_by_the_command(two_logs: Home) -> None:
    refused(two_logs.run("replay", "17"), USAGE, "there is no execution 17", "noetl list shows what there is")
    refused(two_logs.run("replay", "x"), USAGE, "'x' is not an execution id", "decimal numbers")
    assert not (two_logs.path.parent / "x.jsonl").exists()


MOMENTS = {
    "a time to come": (["--at-time", "2999-01-01T00:00:00Z"], "is in the future", "only be asked about the past"),
    "no time": (["--at-time", "tea time"], "'tea time' is not an ISO 8601 time", "2026-05-16T12:34:56Z"),
    "position 0": (["--at-position", "0"], "position 0 is outside the ledger, which has 1 to 126", ""),
    "a negative position": (["--at-position", "-1"], "position -1 is outside the ledger", ""),
    "a position to come": (["--at-position", "127"], "position 127 is outside the ledger", ""),
    "a position of letters": (["--at-position", "x"], "'x' is not a valid integer", ""),
    "an event of another": (
        ["--at-event", "286860194779000832"],
        f"no event 286860194779000832 in execution/{ORDERS}",
        "noetl events",
    ),
    "no event": (["--at-event", "x"], "'x' is not an event id", "decimal numbers"),
    "an event out of range": (["--at-event", "9" * 30], "is not an event id", "decimal numbers"),
    "two at once": (
        ["--at-event", "1", "--at-time", "2026-01-01"],
        "--at-event and --at-time exclude each other",
        "one moment",
    ),
}


@pytest.mark.parametrize("case", MOMENTS)
def test_a_moment_that_is_not_there(case: str, two_logs: Home, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, *said = MOMENTS[case]
    with unchanged(two_logs):
        refused(two_logs.here(capsys, "replay", ORDERS, *arguments), USAGE, *said)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from", "500"], "position 500 is outside"),
        (["--from", "event:x"], "'x' is not an event id"),
        (["--from", "event:1"], "there is no event 1"),
        (["--from", "1", "--to", "2999-01-01"], "is in the future"),
        (["--from", "soon"], "'soon' is not an ISO 8601 time"),
        ([], "Missing option '--from'"),
    ],
)
def test_a_diff_between_moments_that_are_not_there(
    arguments: list[str], said: str, two_logs: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    result = two_logs.here(capsys, "diff", ORDERS, *arguments)
    assert (result.code, result.stdout) == (USAGE, "")
    assert said in result.stderr


def test_a_misspelt_command(two_logs: Home) -> None:
    refused(two_logs.run("verfy"), USAGE, "No such command 'verfy'", "Did you mean 'verify'?")


def test_a_command_like_no_other(two_logs: Home) -> None:
    refused(two_logs.run("qqq"), USAGE, "No such command 'qqq'", "--help")


def test_a_misspelt_option(two_logs: Home) -> None:
    refused(two_logs.run("replay", ORDERS, "--at-tiem", "x"), USAGE, "No such option", "--at-time")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (["verify"], "name an execution, or ask for --all"),
        (["verify", ORDERS, "--all"], "name an execution, or ask for --all"),
        (["export", ORDERS, "--format", "feather"], "add --out FILE"),
        (["export", ORDERS, "--format", "csv"], "'csv' is not one of"),
        (["list", "--cursor", "nonsense"], "'nonsense' is not a cursor"),
        (["list", "--limit", "0"], "0 is not in the range"),
        (["list", "--status", "LOST"], "'LOST' is not one of"),
        (["events", ORDERS, "--cursor", "x"], "'x' is not a valid integer"),
        (["events", ORDERS, "--cursor", "9" * 30], "is not in the range"),
        (["import"], "Missing argument"),
    ],
)
def test_a_call_that_makes_no_sense(
    call: list[str], said: str, two_logs: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    result = two_logs.here(capsys, *call)
    assert (result.code, result.stdout) == (USAGE, "")
    assert said in result.stderr


def test_an_error_is_one_document_too(two_logs: Home) -> None:
    result = two_logs.run("replay", "17", "--json")
    assert result.code == USAGE
    assert result.document == {
        "error": {
            "kind": "NotFound",
            "message": "there is no execution 17",
            "hint": "noetl list shows what there is",
        }
    }


# --- Homes ------------------------------------------------------------------------------------------------


def test_a_home_that_is_a_file(new_home: Home) -> None:
    new_home.path.write_text("not a directory", encoding="ascii")
    refused(
        new_home.run("import", HELLO),
        UNAVAILABLE,
        f"cannot create the home {new_home.path}",
        "choose another with --home",
    )
    assert new_home.path.read_text(encoding="ascii") == "not a directory"


def test_a_home_below_a_file(new_home: Home) -> None:
    new_home.path.write_text("", encoding="ascii")
    below = Home(new_home.path / "deeper")
    refused(below.run("import", HELLO, cwd=new_home.path.parent), UNAVAILABLE, f"cannot create the home {below.path}")


def test_a_wallet_that_is_a_file(new_home: Home) -> None:
    new_home.path.mkdir()
    (new_home.path / "wallet").touch()
    refused(new_home.run("import", HELLO), UNAVAILABLE, "cannot create the home")


@pytest.mark.parametrize("call", [["replay", ORDERS], ["verify", "--all"], ["events", ORDERS], ["export", ORDERS]])
def test_a_home_without_a_ledger(call: list[str], new_home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    refused(new_home.here(capsys, *call), USAGE, f"there is no ledger in {new_home.path}", "import a log first")
    assert not new_home.path.exists()


def test_a_key_that_others_can_read(home: Home) -> None:
    home.key.chmod(0o644)
    with unchanged(home):
        refused(home.run("verify", "--all"), USAGE, f"{home.key} can be read by others", f"chmod 600 {home.key}")


@pytest.mark.parametrize("content", [b"", b"12ab", b"x" * 64, b"\xff" * 64])
def test_a_key_that_is_none(content: bytes, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.key.write_bytes(content)
    with unchanged(home):
        refused(
            home.here(capsys, "list"), USAGE, f"{home.key} does not hold a key of 32 bytes", "restore it from a backup"
        )


def test_an_unknown_setting(home: Home) -> None:
    (home.path.parent / "noetl.toml").write_text("[ledger]\nbusy_timeot = '3s'\n", encoding="utf-8")
    with unchanged(home):
        refused(home.run("list"), USAGE, "noetl.toml:2: unknown key", "'busy_timeot'", "did you mean 'busy_timeout'?")


def test_an_unknown_setting_in_the_environment(home: Home) -> None:
    result = home.run("list", env={"NOETL_LEGDER__BUSY_TIMEOUT": "3s"})
    refused(result, USAGE, "NOETL_LEGDER__BUSY_TIMEOUT", "did you mean 'ledger'?")


def test_a_setting_of_another_kind(home: Home) -> None:
    result = home.run("list", env={"NOETL_LEDGER__BUSY_TIMEOUT": "soon"})
    refused(result, USAGE, "NOETL_LEDGER__BUSY_TIMEOUT: ledger.busy_timeout: 'soon' is not a duration", "such as 30s")


# --- Databases --------------------------------------------------------------------------------------------


def test_a_list_is_shown_while_another_process_is_writing(home: Home) -> None:
    """It would like to catch up first, as after a run that was killed; it does not insist."""
    home.change(
        "UPDATE projection_checkpoint SET position = 87", f"DELETE FROM projection WHERE root = 'execution/{FRAMES}'"
    )
    other = sqlite3.connect(home.ledger, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        result = home.run("list", "--json", env={"NOETL_LEDGER__BUSY_TIMEOUT": "50ms"})
        assert result.code == 0
        assert [row["execution_id"] for row in result.document["executions"]] == [ORDERS]
    finally:
        other.close()


def test_a_database_that_another_process_is_writing_to(home: Home) -> None:
    other = sqlite3.connect(home.ledger, isolation_level=None)
    try:
        other.execute("BEGIN EXCLUSIVE")
        result = home.run("import", HELLO, env={"NOETL_LEDGER__BUSY_TIMEOUT": "50ms"})
        refused(result, UNAVAILABLE, f"{home.ledger} is locked by another process", "ledger.busy_timeout")
        assert home.run("verify", "--all").code == 0, "readers do not wait"
    finally:
        other.close()
    home.json("import", HELLO)


@pytest.mark.parametrize("kept", [100, 4096, 40_000, 120_000])
def test_a_truncated_database(kept: int, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    with home.ledger.open("r+b") as file:
        file.truncate(kept)
    with unchanged(home):
        for call in (["verify", "--all"], ["list"], ["import", str(HELLO)]):
            refused(
                home.here(capsys, *call), MISMATCH, f"{home.ledger} is damaged", "restore from an export or a backup"
            )


def test_random_bytes_over_the_middle_of_a_database(home: Home) -> None:
    data = bytearray(home.ledger.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 8192] = random.Random(7).randbytes(8192)
    home.ledger.write_bytes(data)
    with unchanged(home):
        refused(home.run("verify", "--all"), MISMATCH, f"{home.ledger} is damaged")


def test_random_bytes_over_the_whole_of_a_database(home: Home) -> None:
    home.ledger.write_bytes(random.Random(7).randbytes(home.ledger.stat().st_size))
    with unchanged(home):
        refused(home.run("list"), MISMATCH, f"{home.ledger} is damaged")


def test_one_flipped_bit_anywhere_in_the_file_is_found(
    home: Home, two_logs: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pages hold events, heads, keys, rows and indexes; a flip that matters to none of them may pass."""
    whole = two_logs.ledger.read_bytes()
    dice = random.Random(11)
    unnoticed = 0
    for place in [dice.randrange(len(whole)) for _ in range(60)]:
        home.ledger.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << dice.randrange(8))]) + whole[place + 1 :])
        code = home.here(capsys, "verify", "--all").code
        assert code in (0, USAGE, MISMATCH)
        unnoticed += code == 0 and not _same_content(home, two_logs)
    assert unnoticed == 0


def _same_content(one: Home, two: Home) -> bool:
    """True when all that is vouched for is the same; outbox, leases and unused bytes are not."""
    tables = ("event", "stream_head", "ledger_head", "surface_rows")
    for table in tables:
        sql = (
            "SELECT surface, root_number, root, tenant_id, row_id, row FROM projection ORDER BY 1, 2, 5"
            if table == "surface_rows"
            else f"SELECT * FROM {table} ORDER BY 1, 2"
        )
        with one.sql() as left, two.sql() as right:
            if left.execute(sql).fetchall() != right.execute(sql).fetchall():
                return False
    return True


def test_a_database_of_somebody_else(new_home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    new_home.path.mkdir()
    connection = sqlite3.connect(new_home.ledger)
    connection.execute("CREATE TABLE recipe (name TEXT)")
    connection.commit()
    connection.close()
    before = new_home.ledger.read_bytes()
    for call in (["list"], ["verify", "--all"], ["import", str(HELLO)]):
        refused(
            new_home.here(capsys, *call), USAGE, "is a SQLite database, but not one of NoETL's", "choose another --home"
        )
    assert new_home.ledger.read_bytes() == before


def test_a_database_of_a_newer_release(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.change("INSERT INTO schema_migration (number, name, sha256) VALUES (999, '0999_future.sql', 'x')")
    with unchanged(home):
        for call in (["list"], ["verify", "--all"], ["import", str(HELLO)]):
            refused(home.here(capsys, *call), USAGE, f"{home.ledger} was written by a newer release", "upgrade noetl")


def test_a_database_of_a_modified_release(home: Home) -> None:
    home.change("UPDATE schema_migration SET sha256 = 'x' WHERE number = 1")
    with unchanged(home):
        refused(home.run("list"), MISMATCH, "migration 1 differs from the one in this release")


# --- Full disks -------------------------------------------------------------------------------------------


def small_files() -> None:
    """No file may grow beyond what SQLite needs to be read at all, as on a disk that has just that much left."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (33_000, 33_000))


@pytest.mark.parametrize("format_", ["jsonl", "feather"])
def test_a_disk_that_fills_up_during_an_export(format_: str, large: LargeLog, large_home: Home, tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    file = target / f"orders.{format_}"
    with unchanged(large_home):
        result = large_home.run("export", large.execution, "--format", format_, "--out", file, preexec_fn=small_files)
        refused(result, UNAVAILABLE, f"cannot write {file}")
    assert list(target.iterdir()) == []


def test_a_disk_that_fills_up_leaves_the_old_export(two_logs: Home, tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl"
    file.write_text("the old one", encoding="ascii")
    result = two_logs.run("export", ORDERS, "--out", file, preexec_fn=small_files)
    refused(result, UNAVAILABLE, f"cannot write {file}")
    assert file.read_text(encoding="ascii") == "the old one"


@pytest.mark.parametrize("call", [["export", ORDERS], ["list"], ["events", ORDERS, "--json"], ["verify", "--all"]])
def test_a_full_standard_output(call: list[str], two_logs: Home) -> None:
    with Path("/dev/full").open("wb") as full:
        result = two_logs.run(*call, stdout=full)
    refused(result, UNAVAILABLE, "No space left on device")


def test_a_device_is_written_to_and_never_replaced(two_logs: Home) -> None:
    refused(two_logs.run("export", ORDERS, "--out", "/dev/full"), UNAVAILABLE, "cannot write /dev/full: No space left")
    assert two_logs.json("export", ORDERS, "--out", "/dev/null")["sha256"] is None
    assert Path("/dev/null").is_char_device()
    assert Path("/dev/full").is_char_device()


def test_a_folder_in_place_of_a_file_to_export_to(two_logs: Home, tmp_path: Path) -> None:
    refused(two_logs.run("export", ORDERS, "--out", tmp_path), USAGE, f"cannot write {tmp_path}: it is a folder")


def test_a_folder_that_is_not_there(two_logs: Home, tmp_path: Path) -> None:
    file = tmp_path / "nowhere" / "orders.jsonl"
    refused(two_logs.run("export", ORDERS, "--out", file), UNAVAILABLE, f"cannot write {file}", "No such file")


def test_a_link_keeps_pointing_to_its_file(two_logs: Home, tmp_path: Path) -> None:
    file, link = tmp_path / "real.jsonl", tmp_path / "link.jsonl"
    file.touch()
    link.symlink_to(file)
    two_logs.json("export", FRAMES, "--out", link)
    assert link.is_symlink()
    assert file.read_bytes() == FRAMES_LOG.read_bytes()


def test_a_disk_that_fills_up_during_an_import(new_home: Home) -> None:
    new_home.json("import", HELLO)
    result = new_home.run("import", ORDERS_LOG, preexec_fn=small_files)
    refused(result, UNAVAILABLE, str(new_home.ledger))
    assert new_home.run("verify", "--all").code == 0
    assert [item["event_count"] for item in new_home.json("list")["executions"]] == [11]
    new_home.json("import", ORDERS_LOG)
