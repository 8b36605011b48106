"""Documents with rows are plain JSON, and are read line by line in one spelling only."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noetl.kernel import canonical
from noetl.kernel.fold.surface import checksum_of_rows
from noetl.replay.evidence.lines import Malformed, RowsReader, RowsWriter

SURFACES = ("apples", "berries", "cherries")
VALUES = st.dictionaries(
    st.text(max_size=5),
    st.integers() | st.text(max_size=9) | st.floats(allow_nan=False, allow_infinity=False),
    max_size=4,
)


def written(rows: dict[str, list[bytes]]) -> tuple[bytes, RowsWriter]:
    sink = io.BytesIO()
    writer = RowsWriter(sink, SURFACES, {"schema": "x", "scope": {"id": 1}})
    for surface, lines in rows.items():
        writer.add(surface, lines)
    writer.finish({"total": 3})
    return sink.getvalue(), writer


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.fixed_dictionaries({}, optional={name: st.lists(VALUES, max_size=4) for name in SURFACES}))
def test_what_is_written_is_one_json_document_and_is_read_again(
    rows: dict[str, list[dict[str, object]]], tmp_path: Path
) -> None:
    lines = {name: [canonical.encode(row) for row in rows[name]] for name in sorted(rows)}
    data, writer = written(lines)
    document = json.loads(data)
    assert document["rows"] == {name: rows.get(name, []) for name in SURFACES}
    assert (document["schema"], document["total"]) == ("x", 3)
    file = tmp_path / "rows.json"
    file.write_bytes(data)
    reader = RowsReader(file, SURFACES)
    assert [(row.surface, row.line) for row in reader.rows()] == [(n, r) for n in sorted(lines) for r in lines[n]]
    assert reader.fields == {"schema": "x", "scope": {"id": 1}, "total": 3}
    assert reader.tally.bundle() == {name: checksum_of_rows(name, lines.get(name, [])) for name in SURFACES}
    whole = hashlib.sha256(canonical.encode(document["rows"])).hexdigest()
    assert reader.tally.rows_checksum() == writer.tally.rows_checksum() == whole


@pytest.mark.parametrize(
    ("old", "new", "field", "what"),
    [
        (b'{"a":1}', b'{"a":1', "rows.apples, line 6", "is not an object in canonical form"),
        (b'{"a":1}', b"[1]", "rows.apples, line 6", "is not an object in canonical form"),
        (b'{"a":1}', b'{"a":1,"a":1}', "rows.apples, line 6", "is not an object in canonical form"),
        (b'"apples":[\n', b"", "line 5", "is a row of no surface"),
        (b'"rows":{\n', b"", "line 4", "is neither a field nor a row"),
        (b'"total":3', b'"total":03', "line 14", "is neither a field nor a row"),
        (b'{"a":1},\n', b'{"a":1}\n', "(layout)", "is not written as evidence is"),
        (b'"total":3\n}\n', b'"total":3\n}', "(layout)", "is not written as evidence is"),
        (b'"schema":"x",\n', b'"schema":"x",\n"schema":"x",\n', "(layout)", "is not written as evidence is"),
        (b'"berries":[', b'"berries" :[', "(layout)", "is not written as evidence is"),
        (b'"berries":[', b"berries:[", "line 9", "is not the beginning of a surface"),
    ],
)
def test_another_spelling_is_refused(old: bytes, new: bytes, field: str, what: str, tmp_path: Path) -> None:
    data, _ = written({"apples": [b'{"a":1}', b'{"a":2}']})
    assert old in data
    file = tmp_path / "rows.json"
    file.write_bytes(data.replace(old, new, 1))
    with pytest.raises(Malformed, match=what.split(":", maxsplit=1)[0]) as refused:
        list(RowsReader(file, SURFACES).rows())
    assert refused.value.field == field


def test_nothing_is_no_document(tmp_path: Path) -> None:
    (tmp_path / "rows.json").touch()
    with pytest.raises(Malformed, match="is missing"):
        list(RowsReader(tmp_path / "rows.json", SURFACES).rows())
