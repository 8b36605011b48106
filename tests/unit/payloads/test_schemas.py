"""The digest of a schema: the same wherever and whenever it is taken."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from noetl.errors import InvalidInput
from noetl.payloads.schemas import schema_digest

FIELDS: list[pa.Field[Any]] = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("name", pa.string()),
    pa.field("at", pa.timestamp("us", tz="UTC")),
    pa.field("price", pa.decimal128(38, 2)),
    pa.field("tags", pa.list_(pa.string())),
    pa.field("where", pa.struct([("lat", pa.float64()), ("lon", pa.float64())])),
    pa.field("kind", pa.dictionary(pa.int32(), pa.string())),
]
ORDERS = pa.schema(FIELDS)


def test_the_digest_is_pinned() -> None:
    """A change here means that digests in old events no longer match: never change it, add a version."""
    assert schema_digest(ORDERS) == "88cd100cf9c9e95bc91e81d483cc43c00bfcd9e7c3fa30d9edd8c6f91c2618e8"
    assert schema_digest(pa.schema([])) == "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"


def test_another_process_takes_the_same() -> None:
    program = "import pyarrow as pa; from noetl.payloads.schemas import schema_digest; " + (
        "print(schema_digest(pa.schema([('a', pa.list_(pa.int8())), ('b', pa.uuid())])))"
    )
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip()
    assert found == schema_digest(pa.schema([("a", pa.list_(pa.int8())), ("b", pa.uuid())]))


def test_metadata_and_names_of_items_do_not_count() -> None:
    plain = pa.schema([("a", pa.list_(pa.int8()))])
    described = pa.schema([pa.field("a", pa.list_(pa.field("element", pa.int8())), metadata={"x": "y"})], {"k": "v"})
    assert schema_digest(plain) == schema_digest(described)


@pytest.mark.parametrize(
    "other",
    [
        pa.schema([("b", pa.int64())]),
        pa.schema([("a", pa.int32())]),
        pa.schema([pa.field("a", pa.int64(), nullable=False)]),
        pa.schema([("a", pa.int64()), ("b", pa.int64())]),
        pa.schema([("a", pa.list_(pa.int64()))]),
        pa.schema([("a", pa.dictionary(pa.int8(), pa.int64()))]),
    ],
)
def test_names_types_and_nullability_count(other: pa.Schema) -> None:
    assert schema_digest(pa.schema([("a", pa.int64())])) != schema_digest(other)


@pytest.mark.parametrize(
    "pair",
    [
        (pa.timestamp("us"), pa.timestamp("us", tz="UTC")),
        (pa.timestamp("us"), pa.timestamp("ns")),
        (pa.decimal128(10, 2), pa.decimal128(10, 3)),
        (pa.decimal128(10, 2), pa.decimal256(10, 2)),
        (pa.string(), pa.large_string()),
        (pa.string_view(), pa.binary_view()),
        (pa.list_(pa.int8()), pa.list_(pa.int8(), 3)),
        (pa.list_(pa.int8()), pa.list_(pa.field("item", pa.int8(), nullable=False))),
        (pa.list_view(pa.int8()), pa.large_list_view(pa.int8())),
        (pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int8(), True)),
        (pa.struct([("x", pa.int8())]), pa.struct([("y", pa.int8())])),
        (pa.binary(4), pa.binary(5)),
        (pa.time32("s"), pa.time32("ms")),
        (pa.duration("s"), pa.duration("ms")),
        (pa.dense_union([pa.field("a", pa.int8())]), pa.sparse_union([pa.field("a", pa.int8())])),
        (pa.run_end_encoded(pa.int16(), pa.int8()), pa.run_end_encoded(pa.int32(), pa.int8())),
        (pa.uuid(), pa.binary(16)),
        (pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int8(), pa.string(), ordered=True)),
        (pa.month_day_nano_interval(), pa.date64()),
    ],
    ids=str,
)
def test_types_that_differ_in_a_parameter_differ(pair: tuple[pa.DataType, pa.DataType]) -> None:
    first, second = (schema_digest(pa.schema([("a", kind)])) for kind in pair)
    assert first != second


def test_a_type_from_the_future_is_refused_rather_than_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    from noetl.payloads import schemas

    monkeypatch.setattr(schemas, "_tables", lambda: ({}, {}))
    with pytest.raises(InvalidInput, match="Arrow type 'int64' has no place"):
        schema_digest(pa.schema([("a", pa.int64())]))
