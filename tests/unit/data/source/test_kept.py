"""Results and payloads, as parts that any process reads from the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from noetl.data.source import kept
from noetl.data.source.locators import read_locator
from noetl.data.source.place import Place, place_here
from noetl.errors import AccessRefused, InvalidInput, NotFound
from noetl.kernel.event import Json
from tests.unit.runtime.plant import Plant, opened
from tests.unit.runtime.workshop import book, step


def work(place: Path, do: Callable[[Plant], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with opened(place) as plant:
            return await do(plant)

    return asyncio.run(run())


def python(name: str, code: str, *then: str) -> Json:
    return step(name, *then, tool={"kind": "python", "code": code})


def table(place: Place, locator: str, **options: bool) -> pa.Table:
    found = kept.find(place, read_locator(locator), **options)
    batches = [batch for part in found.parts for batch in kept.read(place, part, found.schema)]
    return pa.Table.from_batches(batches, found.schema)


def test_values_are_rows(place: Place, tmp_path: Path) -> None:
    document = book(
        python("rows", "result = [{'a': 1}, {'a': 2, 'b': 'x'}]", "one"),
        python("one", "result = {'total': 7}", "scalars"),
        python("scalars", "result = [1, 2]", "nothing"),
        python("nothing", "result = None", "stored"),
        python("stored", "result = {'rows': [{'n': n, 'text': 'x' * 100} for n in range(2000)]}", "native"),
        python("native", "import pyarrow as pa\nresult = pa.table({'n': pa.array(range(9), pa.uint16())})"),
    )
    run = work(tmp_path, lambda plant: plant.run(document))
    assert run.status == "COMPLETED", run.error
    at = f"results/{run.execution_id}"
    assert table(place, f"{at}/rows").to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
    assert table(place, f"{at}/one").to_pylist() == [{"total": 7}]
    assert table(place, f"{at}/scalars").to_pylist() == [{"value": 1}, {"value": 2}]
    assert table(place, f"{at}/nothing").num_rows == 0
    assert table(place, f"{at}/stored")["n"].to_pylist() == list(range(2000))
    native = table(place, f"{at}/native")
    assert native.schema == pa.schema({"n": pa.int32()})  # Spark has no unsigned numbers
    assert native["n"].to_pylist() == list(range(9))
    with pytest.raises(NotFound, match="step 'other' has not ended"):
        table(place, f"{at}/other")
    with pytest.raises(NotFound, match="there is no execution 1"):
        table(place, "results/1/rows")


def test_payloads_are_tables_or_refused(place: Place, tmp_path: Path) -> None:
    async def store(plant: Plant) -> list[str]:
        tiers = plant.embedded.tiers
        ref = await tiers.store_table(pa.table({"a": [1, 2]}))
        text = await tiers.store(b"only text", media_type="text/plain")
        return [ref.uri, text.uri]

    rows, text = work(tmp_path, store)
    assert table(place, rows).to_pylist() == [{"a": 1}, {"a": 2}]
    with pytest.raises(InvalidInput, match="is bytes \\(text/plain\\), not rows"):
        table(place, text)
    with pytest.raises(AccessRefused, match="belongs to tenant 'other'"):
        table(place, rows.replace("noetl://default", "noetl://other"))
    with pytest.raises(NotFound):
        table(place, rows[:-4] + "0000")


def test_what_is_encrypted_is_refused(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_PAYLOADS__ENCRYPT", "true")
    with pytest.raises(AccessRefused, match="are encrypted, and Spark is not given the key"):
        table(place, "results/1/rows")


def test_nothing_is_made_by_looking(place: Place, home: Path) -> None:
    with pytest.raises(NotFound, match="there is no ledger at"):
        table(place, "results/1/rows")
    with pytest.raises(NotFound, match="'noetl://default/default/datasets/a' has no files"):
        table(place, "datasets/a")
    assert not home.exists()


def test_columns_that_are_not_there_are_named() -> None:
    with pytest.raises(InvalidInput, match="there is no column 'b'"):
        kept.check_columns(pa.schema({"a": pa.int64()}), pa.schema({"b": pa.int64()}))


def test_the_place_is_the_one_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "noetl.toml").write_text('[tenant]\nid = "acme"\n')
    below = tmp_path / "below"
    below.mkdir()
    at = place_here({"HOME": "/nowhere"}, below)
    assert at.home == str(tmp_path / ".noetl")
    assert at.settings({}).tenant.id == "acme"
    assert place_here({"NOETL_HOME": "here"}, below).home == str(below / "here")
    assert Place(home="x", directory=str(below), tenant="other").settings({}).tenant.id == "other"
