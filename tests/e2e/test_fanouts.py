"""Fan-outs over files as a user runs them: killed in the middle, and with files that do not stay what they were."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.e2e.scenes import Scene, book
from tests.services.counter import Counting, counting

ROWS = 40


@pytest.fixture
def counter() -> Iterator[Counting]:
    with counting() as counted:
        yield counted


def write_csv(file: Path) -> None:
    file.write_text("id\n" + "".join(f"{number}\n" for number in range(ROWS)))


def write_parquet(file: Path) -> None:
    pq.write_table(pa.table({"id": list(range(ROWS))}), file, row_group_size=15)


WRITERS = {"csv": write_csv, "parquet": write_parquet}


def fanout(file: Path, counter: Counting) -> dict[str, Any]:
    spec = {"mode": "fanout", "max_in_flight": 2, "frame": {"max_rows": 4}}
    post = {"kind": "http", "method": "POST", "url": f"{counter.url}/{{{{ row.id }}}}", "json": {}}
    return {"step": "spread", "loop": {"in": {"path": str(file)}, "iterator": "row", "spec": spec}, "tool": post}


def killed(scene: Scene, file: Path, counter: Counting) -> str:
    """Run until a row in the middle is held, and kill; the execution."""
    counter.hold("/21")
    process = scene.home.start("run", scene.write(book("spread", fanout(file, counter))))
    counter.wait_held()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    counter.release()
    (execution,) = scene.roots()
    return execution


def frames(scene: Scene, event_type: str) -> int:
    with scene.home.sql() as log:
        said = log.execute("SELECT count(*) FROM event WHERE event_type = ?", (event_type,))
        return int(said.fetchone()[0])


@pytest.mark.parametrize("form", WRITERS)
def test_killed_in_the_middle_every_row_is_run_and_none_under_two_keys(
    form: str, scene: Scene, counter: Counting
) -> None:
    file = scene.place / f"rows.{form}"
    WRITERS[form](file)
    execution = killed(scene, file, counter)
    under_way = frames(scene, "frame.dispatched") - frames(scene, "frame.committed")
    document = scene.home.json("resume", execution)
    assert document["status"] == "COMPLETED", document
    assert len(counter.calls) == len(counter.keys) == ROWS
    assert counter.total <= ROWS + under_way * 4
    assert document["result"]["stats"]["total"] == document["result"]["rows"] == ROWS
    assert scene.home.json("verify", execution)["parity"]


def test_what_was_read_once_is_not_needed_again(scene: Scene, counter: Counting) -> None:
    file = scene.place / "rows.csv"
    write_csv(file)
    execution = killed(scene, file, counter)
    file.unlink()
    assert scene.home.json("resume", execution)["status"] == "COMPLETED"
    assert len(counter.calls) == ROWS


def test_a_file_that_was_changed_meanwhile_is_not_mistaken_for_what_it_was(scene: Scene, counter: Counting) -> None:
    file = scene.place / "rows.parquet"
    write_parquet(file)
    execution = killed(scene, file, counter)
    pq.write_table(pa.table({"id": list(range(100, 100 + ROWS))}), file)
    ended = scene.home.run("resume", execution, "--json")
    assert (ended.code, ended.document["status"]) == (1, "FAILED")
    assert "rows.parquet was changed since the stage began" in ended.document["error"]["message"]
    assert not [path for path in counter.calls if int(path.removeprefix("/")) >= ROWS]
