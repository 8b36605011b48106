"""Events as Arrow, cut into spans."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import datasource as spark

from noetl.data.source.events import SCHEMA, Span, batches, check_columns, spans, terms_of
from noetl.data.source.filters import narrowed, term_of
from noetl.data.source.log import LogSpec, Term, open_log
from noetl.data.source.options import EventOptions
from noetl.errors import InvalidInput
from tests.unit.data.source.conftest import Append


def table(spec: LogSpec, terms: tuple[Term, ...] = (), schema: pa.Schema = SCHEMA) -> pa.Table:
    with open_log(spec) as log:
        return pa.Table.from_batches(batches(log, schema, terms, Span(0, log.head())), schema)


def test_every_column_has_its_type_and_position(spec: LogSpec, append: Append) -> None:
    append(3)
    found = table(spec)
    assert found["position"].to_pylist() == [1, 2, 3]
    assert found["payload"].to_pylist() == ['{"n":0}', '{"n":1}', '{"n":2}']
    assert found["execution_id"].to_pylist() == [1, 1, 1]
    assert found["ingest_time"][0].as_py().tzinfo is not None
    assert found["other"].null_count == 3


def test_fewer_columns_are_read_when_fewer_are_asked_for(spec: LogSpec, append: Append) -> None:
    append(2)
    schema = pa.schema([SCHEMA.field("event_type"), SCHEMA.field("position")])
    check_columns(schema)
    assert table(spec, schema=schema).to_pylist() == [{"event_type": "step.enter", "position": n} for n in (1, 2)]
    with pytest.raises(InvalidInput, match="no column 'colour'"):
        check_columns(pa.schema([("colour", pa.string())]))
    with pytest.raises(InvalidInput, match="column position of events is int64"):
        check_columns(pa.schema([("position", pa.string())]))


def test_fields_of_a_later_release_are_in_other(spec: LogSpec, append: Append, home: Path) -> None:
    append(2)
    with sqlite3.connect(home / "ledger.db") as other:
        other.execute("ALTER TABLE event ADD COLUMN region TEXT")
        other.execute("UPDATE event SET region = 'eu' WHERE position = 2")
    other.close()
    assert table(spec)["other"].to_pylist() == [None, '{"region":"eu"}']


def test_tenants_types_and_executions(spec: LogSpec, append: Append) -> None:
    append(2, execution=1)
    append(2, execution=2, tenant="other")
    append(1, execution=1, event_type="step.exit")
    assert table(spec, terms_of(EventOptions(), "acme"))["position"].to_pylist() == [1, 2, 5]
    assert table(spec, terms_of(EventOptions(), "*")).num_rows == 5
    one = terms_of(EventOptions(execution_id=1, types=("step.exit",)), "acme")
    assert table(spec, one)["position"].to_pylist() == [5]


def test_spans_cover_all_positions_once(spec: LogSpec, append: Append) -> None:
    append(7)
    with open_log(spec) as log:
        assert spans(log, (), Span(0, 7), 3) == [Span(0, 3), Span(3, 6), Span(6, 7)]
        assert spans(log, (), Span(1, 7), 3) == [Span(1, 4), Span(4, 7)]
        assert spans(log, (), Span(0, 7), 100) == [Span(0, 7)]
        assert spans(log, (), Span(7, 7), 3) == []


def test_spans_of_an_execution_have_as_many_rows_however_far_apart(spec: LogSpec, append: Append) -> None:
    for _ in range(4):
        append(1, execution=1)
        append(5, execution=2)
    terms = terms_of(EventOptions(execution_id=1), "acme")
    with open_log(spec) as log:
        found = spans(log, terms, Span(0, 24), 2)
        assert found == [Span(0, 7), Span(7, 19), Span(19, 24)]
        assert [sum(len(page) for page in log.pages([], terms, one.after, one.to)) for one in found] == [2, 2, 0]


class TestFilters:
    @pytest.mark.parametrize(
        ("asked", "expected"),
        [
            (spark.EqualTo(("event_type",), "a"), Term("event_type", "=", "a")),
            (spark.GreaterThan(("position",), 5), Term("position", ">", 5)),
            (spark.In(("execution_id",), (1, 2)), Term("execution_id", "in", (1, 2))),
            (spark.IsNotNull(("node_name",)), Term("node_name", "is not null")),
            (
                spark.LessThan(("ingest_time",), datetime(2026, 3, 2, 8, tzinfo=UTC)),
                Term("ingest_time", "<", "2026-03-02T08:00:00.000000Z"),
            ),
        ],
    )
    def test_what_the_ledger_can_check(self, asked: spark.Filter, expected: Term) -> None:
        assert term_of(asked) == expected

    @pytest.mark.parametrize(
        "asked",
        [
            spark.EqualTo(("payload", "n"), 1),
            spark.EqualTo(("other",), "x"),
            spark.EqualTo(("position",), None),
            spark.EqualTo(("event_type",), 7),
            spark.In(("event_type",), tuple(map(str, range(600)))),
            spark.LessThan(("ingest_time",), datetime(2026, 3, 2)),  # noqa: DTZ001 - of no zone
            spark.StringStartsWith(("event_type",), "a"),
            spark.Not(spark.EqualTo(("event_type",), "a")),
            spark.EqualNullSafe(("event_type",), "a"),
        ],
    )
    def test_what_is_left_to_spark(self, asked: spark.Filter) -> None:
        assert term_of(asked) is None

    @pytest.mark.parametrize(
        ("term", "expected"),
        [
            (Term("position", "=", 4), Span(3, 4)),
            (Term("position", ">", 4), Span(4, 9)),
            (Term("position", ">=", 4), Span(3, 9)),
            (Term("position", "<", 4), Span(1, 3)),
            (Term("position", "<=", 4), Span(1, 4)),
            (Term("position", "<", 1), Span(1, 1)),
            (Term("position", "in", (4,)), None),
            (Term("event_id", "=", 4), None),
        ],
    )
    def test_positions_narrow_what_is_planned(self, term: Term, expected: Span | None) -> None:
        assert narrowed(Span(1, 9), term) == expected
