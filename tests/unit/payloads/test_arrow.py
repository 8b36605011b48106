"""Values as tables: exactly, or not at all."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl.errors import InvalidInput
from noetl.kernel import canonical
from noetl.payloads.arrow import rows_of, table_of, value_of
from noetl.payloads.formats import feather_pieces, stream_pieces, table_in
from noetl.payloads.schemas import schema_digest

ELSEWHERE = timezone(timedelta(hours=5, minutes=45))
NOON = datetime(2026, 5, 16, 12, 0, 0, 123456, tzinfo=ELSEWHERE)


def tabular(value: Any) -> pa.Table:
    table = table_of(value)
    assert table is not None
    return table


class TestExactness:
    @pytest.mark.parametrize(
        ("values", "kind"),
        [
            ([1, None, -5], pa.int64()),
            ([2**63, 0], pa.uint64()),
            ([1.0, 2.5, None], pa.float64()),
            ([-0.0], pa.float64()),
            ([True, None], pa.bool_()),
            (["", "ü", None], pa.string()),
            ([None, None], pa.null()),
            ([Decimal("1.50"), Decimal("-2.25")], pa.decimal128(38, 2)),
            ([Decimal("1E+3")], pa.decimal128(38, 0)),
            ([Decimal("1" * 60)], pa.decimal256(76, 0)),
            ([NOON, datetime(1969, 1, 1, tzinfo=UTC)], pa.timestamp("us", tz="UTC")),
            ([[1, 2], [], None], pa.list_(pa.int64())),
            ([[], []], pa.list_(pa.null())),
            ([(1, 2)], pa.list_(pa.int64())),
            ([{"x": 1, "y": [None, "a"]}, None], pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])),
            ([{}], pa.struct([])),
        ],
    )
    def test_what_fits_a_type_comes_back_the_same(self, values: list[Any], kind: pa.DataType) -> None:
        rows = [{"a": value, "n": index} for index, value in enumerate(values)]
        table = tabular(rows)
        assert table.schema.field("a").type == kind
        assert canonical.encode(rows_of(table)) == canonical.encode(rows)

    @pytest.mark.parametrize(
        "value",
        [
            [{"a": 1}, {"a": 2.5}],
            [{"a": 1}, {"a": True}],
            [{"a": 1}, {"a": "1"}],
            [{"a": [1, 2.5]}],
            [{"a": 1}, {}],
            [{"a": 1}, {"a": 1, "b": None}],
            [{"a": {"x": 1}}, {"a": {"y": 1}}],
            [{"a": [{"x": 1}, {}]}],
            [{"a": 2**64}],
            [{"a": -1}, {"a": 2**63}],
            [{"a": float("nan")}],
            [{"a": float("inf")}],
            [{"a": "\ud800"}],
            [{"\ud800": 1}],
            [{"a": {"\ud800": 1}}],
            [{"a": {1: 1}}],
            [{1: 1}],
            [{}],
            [{"a": Decimal("1.5")}, {"a": Decimal("1.50")}],
            [{"a": Decimal("-0.0")}],
            [{"a": Decimal("NaN")}],
            [{"a": Decimal("1E-77")}],
            [{"a": datetime(2026, 1, 1)}],  # noqa: DTZ001 - a time without a zone is what is refused
            [{"a": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))}],
            [{"a": date(2026, 1, 1)}],
            [{"a": b"x"}],
            [{"a": {1, 2}}],
            [1, 2],
            [{"a": 1}, [1]],
            "text",
            None,
            {"a": 1},
            {"rows": [{"a": 1}]},
            {"rows": [{"a": 1}], "columns": ["b"]},
            {"rows": [{"a": 1}], "columns": ["a", "a"]},
            {"rows": [{"a": 1}], "columns": ["a", "b"]},
            {"rows": [{"a": 1}], "columns": [1]},
            {"rows": [[1, 2], [1]], "columns": ["a", "b"]},
            {"rows": [[]], "columns": []},
            {"rows": [{"a": 1}], "columns": ["a"], "more": "x" * 70_000},
            {"rows": [{"a": 1}], "columns": ["a"], "more": {1, 2}},
            {"rows": [{"a": 1}], "columns": ["a"], 1: [{"a": 1}]},
            {"rows": [{"a": 1}], "columns": ["a"], "more": {1: [{"a": 1}]}},
        ],
        ids=lambda value: ascii(value)[:60],
    )
    def test_what_would_change_is_not_tabular(self, value: Any) -> None:
        assert table_of(value) is None

    def test_nesting_without_end_is_not_tabular(self) -> None:
        value: list[Any] = []
        value.append(value)
        assert table_of([{"a": value}]) is None
        deep: Any = 1
        for _ in range(100):
            deep = [deep]
        assert table_of([{"a": deep}]) is None
        fits: Any = 1
        for _ in range(30):
            fits = {"a": [fits]} if isinstance(fits, int) else [fits]
        table = tabular([{"a": fits}])
        assert value_of(table_in(b"".join(feather_pieces(table)))) == [{"a": fits}]

    @pytest.mark.parametrize(
        "value",
        [
            [],
            [{"b": 1, "a": 2}, {"a": 3, "b": 4}],
            {"rows": [], "columns": ["a", "b"]},
            {"rows": [], "columns": []},
            {"rows": [{"a": 1}], "columns": ["a"], "row_count": 1, "status": "success", "at": NOON},
            {"rows": [[1, "x"], [2, None]], "columns": ["a", "b"]},
            {"rows": [{"b": 1, "a": "x"}], "columns": ["a", "b"]},
        ],
        ids=lambda value: ascii(value)[:60],
    )
    def test_the_shape_around_the_rows_comes_back(self, value: Any) -> None:
        table = tabular(value)
        for stored in (feather_pieces(table), stream_pieces(table)):
            assert canonical.encode(value_of(table_in(b"".join(stored)))) == canonical.encode(value)

    def test_rows_that_stand_in_several_places_are_stored_once(self) -> None:
        """As a database answers: the last statement's rows at the top, under `data` and under its own name."""
        rows = [{"id": number, "name": "x" * 50} for number in range(5000)]
        answer = {"status": "success", "rows": rows, "row_count": 5000, "columns": ["id", "name"]}
        first = {"status": "success", "rows": [], "row_count": 1, "columns": []}
        value = {**answer, "statement_count": 2, "command_0": first, "command_1": answer, "data": rows}
        for same in (value, canonical.decode(canonical.encode(value))):
            table = tabular(same)
            assert table.nbytes < 400_000
            assert canonical.encode(value_of(table)) == canonical.encode(value)

    @pytest.mark.parametrize(
        "other", [[{"a": 1.0}], [{"a": True}], [{"a": 2}], [{"a": 1}, {"a": 1}], ({"a": 1},), [[1]]]
    )
    def test_rows_that_are_merely_equal_are_not_the_same(self, other: Any) -> None:
        value = {
            "rows": [{"a": 1}],
            "columns": ["a"],
            "data": other,
            "more": {"rows": other, "deep": {"rows": [{"a": 1}]}},
        }
        assert canonical.encode(value_of(tabular(value))) == canonical.encode(value)

    def test_the_shape_does_not_change_the_digest(self) -> None:
        rows = [{"a": 1}]
        shaped = tabular({"rows": rows, "columns": ["a"], "status": "success"})
        assert schema_digest(shaped.schema) == schema_digest(tabular(rows).schema)

    def test_a_shape_that_somebody_else_wrote_is_refused(self) -> None:
        table = pa.table({"a": [1]}).replace_schema_metadata({b"noetl": b"[1"})
        with pytest.raises(InvalidInput, match="metadata 'noetl' cannot be understood"):
            value_of(table)


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(2**66), max_value=2**66),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    st.decimals(allow_nan=False, allow_infinity=False, places=2),
    st.datetimes(timezones=st.sampled_from([UTC, ELSEWHERE])),
)
NAMES = st.text(max_size=4)


def of_one_kind() -> st.SearchStrategy[Any]:
    """Strategies that draw values which may well share a column."""
    kinds = st.sampled_from(
        [
            st.booleans(),
            st.integers(min_value=-(2**63), max_value=2**63 - 1),
            st.integers(min_value=0, max_value=2**64 - 1),
            st.floats(allow_nan=False, allow_infinity=False),
            st.text(),
            st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9),
            st.datetimes(timezones=st.just(UTC)),
        ]
    ).map(lambda kind: st.none() | kind)
    return st.recursive(
        kinds,
        lambda inner: (
            inner.map(lambda kind: st.lists(kind, max_size=3))
            | st.dictionaries(NAMES, inner, max_size=3).map(st.fixed_dictionaries)
        ),
        max_leaves=4,
    )


@st.composite
def regular(draw: st.DrawFn) -> list[dict[str, Any]]:
    columns = draw(st.dictionaries(NAMES, of_one_kind(), min_size=1, max_size=4))
    return draw(st.lists(st.fixed_dictionaries(columns), max_size=6))


@st.composite
def anything(draw: st.DrawFn) -> Any:
    leaf = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3))
    return draw(st.lists(st.dictionaries(NAMES, leaf, max_size=3), max_size=4))


class TestProperties:
    @settings(max_examples=200, deadline=None)
    @given(regular() | anything())
    def test_a_table_gives_back_what_went_in(self, rows: list[dict[str, Any]]) -> None:
        table = table_of(rows)
        if table is not None:
            stored = table_in(b"".join(feather_pieces(table)))
            assert canonical.encode(rows_of(stored)) == canonical.encode(rows)
            assert schema_digest(stored.schema) == schema_digest(table.schema)

    @settings(max_examples=100, deadline=None)
    @given(st.lists(st.fixed_dictionaries({"a": st.integers(-9, 9) | st.none(), "b": st.text()}), max_size=9))
    def test_plain_rows_are_tabular(self, rows: list[dict[str, Any]]) -> None:
        try:
            canonical.encode(rows)
        except canonical.NotCanonical:
            return
        assert table_of(rows) is not None


class TestTables:
    def test_tables_of_arrow_are_taken_as_they_are(self) -> None:
        table = pa.table({"a": [1, 2]})
        batch = table.to_batches()[0]
        assert table_of(table) is table
        assert tabular(batch) == table
        assert tabular(pa.RecordBatchReader.from_batches(table.schema, [batch, batch])).num_rows == 4

    def test_columns_alone_are_no_table(self) -> None:
        assert table_of(pa.array([1])) is None
        assert table_of(pa.chunked_array([[1]])) is None

    def test_columns_of_one_name_are_no_table_of_rows(self) -> None:
        table = pa.table([[1], [2]], names=["a", "a"])
        assert table_of(table) is None
        with pytest.raises(InvalidInput, match=r"several columns of one name has no rows: a, a \(rename them\)"):
            rows_of(table)

    def test_a_library_that_hands_out_a_stream_is_understood(self) -> None:
        assert tabular(_frame("polars.dataframe.frame", pa.table({"a": [1]}))).to_pylist() == [{"a": 1}]
        assert table_of(_frame("polars.series.series", pa.chunked_array([[1]]))) is None

    def test_pyarrow_is_not_loaded_for_what_is_no_table(self) -> None:
        program = (
            "import sys; from noetl.payloads.arrow import table_of; "
            "assert table_of([1]) is None and table_of({'a': 1}) is None and table_of('x') is None; "
            "sys.exit('pyarrow' in sys.modules)"
        )
        subprocess.run([sys.executable, "-c", program], check=True)

    @pytest.mark.parametrize(
        ("column", "expected"),
        [
            (pa.array([date(2026, 5, 16)]), "2026-05-16"),
            (pa.array([time(1, 2, 3)]), "01:02:03"),
            (pa.array([datetime(2026, 5, 16, 1)]), "2026-05-16T01:00:00"),  # noqa: DTZ001
            (pa.array([1_000], pa.timestamp("ns")), "1970-01-01T00:00:00.000001"),
            (pa.array([1_000], pa.time64("ns")), "00:00:00.000001"),
            (pa.array([b"\x00\xff"]), "AP8="),
            (pa.array([b"0123456789abcdef"], pa.uuid()), "30313233-3435-3637-3839-616263646566"),
            (pa.array(["x"]).dictionary_encode(), "x"),
            (pa.array([{"d": date(2026, 5, 16)}]), {"d": "2026-05-16"}),
            (pa.array([[1_000]], pa.list_(pa.timestamp("ns"))), ["1970-01-01T00:00:00.000001"]),
            (pa.array([{"t": 1_000}], pa.struct([("t", pa.timestamp("ns"))])), {"t": "1970-01-01T00:00:00.000001"}),
            (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8())), [["k", 1]]),
            (pa.array(["x"], pa.string_view()), "x"),
            (pa.array([1.5], pa.float32()), 1.5),
        ],
    )
    def test_rows_have_a_json_form(self, column: pa.Array[Any], expected: Any) -> None:
        [row] = rows_of(pa.table({"a": column}))
        assert row == {"a": expected}
        canonical.encode(row)

    def test_a_moment_with_a_zone_keeps_its_instant(self) -> None:
        column = pa.array([NOON], pa.timestamp("ns", tz="Asia/Kathmandu"))
        assert canonical.encode(rows_of(pa.table({"a": column}))) == canonical.encode([{"a": NOON}])

    @pytest.mark.parametrize(
        "column",
        [
            pa.array([1], pa.timestamp("ns")),
            pa.array([1], pa.timestamp("ns", tz="UTC")),
            pa.array([{"t": 1}], pa.struct([("t", pa.time64("ns"))])),
            pa.array([1], pa.duration("s")),
            pa.array([None, (1, 2, 3)], pa.month_day_nano_interval()),
        ],
        ids=lambda column: str(column.type),
    )
    def test_what_has_no_exact_form_names_its_column(self, column: pa.Array[Any]) -> None:
        with pytest.raises(InvalidInput, match=r"column 'late' has no exact JSON form: .*\(cast it to another type\)"):
            rows_of(pa.table({"late": column}))


class TestFrames:
    """pandas is the user's own. Where it is not installed, what we ask of it is stood in for."""

    def test_pandas_frames_of_mixed_columns_are_no_table(self) -> None:
        assert table_of(_pandas(columns=[0])) is None

    def test_a_pandas_series_is_no_table(self) -> None:
        assert table_of(type("Series", (), {"__module__": "pandas.core.series"})()) is None

    def test_real_frames(self) -> None:
        pd = pytest.importorskip("pandas")
        pl = pytest.importorskip("polars")
        frame = pd.DataFrame({"a": [1, 2], "b": ["x", None]})
        assert rows_of(tabular(frame)) == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
        assert tabular(frame[frame.a > 1]).column_names == ["a", "b"]
        assert tabular(frame.set_index("a")).column_names == ["a", "b"]
        assert tabular(frame).schema.metadata is None
        assert table_of(pd.DataFrame({"a": [1, "x"]})) is None
        assert table_of(pd.DataFrame({0: [1]})) is None
        assert table_of(pd.DataFrame([[1, 2]], columns=["a", "a"])) is None
        assert table_of(frame["a"]) is None
        stamps = pd.DataFrame({"t": pd.to_datetime(["2026-01-01T00:00:00.000000001Z"])})
        with pytest.raises(InvalidInput, match="column 't'"):
            rows_of(tabular(stamps))
        assert rows_of(tabular(pl.DataFrame({"a": [1], "b": ["x"]}))) == [{"a": 1, "b": "x"}]
        assert table_of(pl.Series([1])) is None


def _frame(module: str, inner: Any) -> Any:
    def stream(_: Any, requested_schema: Any = None) -> Any:
        return inner.__arrow_c_stream__(requested_schema)

    return type("DataFrame", (), {"__module__": module, "__arrow_c_stream__": stream})()


def _pandas(columns: list[Any]) -> Any:
    index = type("Index", (), {"names": [None]})()
    return type("DataFrame", (), {"__module__": "pandas", "index": index, "columns": columns})()
