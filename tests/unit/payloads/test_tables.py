"""Tables as values: read in parts, stored as one file, and back as what they were."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from noetl.errors import InvalidInput
from noetl.kernel import canonical
from noetl.kernel.lazy import Composite
from noetl.payloads.arrow import table_of
from noetl.payloads.formats import feather_pieces, table_in
from noetl.payloads.tables import Rows, TableValue, pack, stored_table, unpack, value_in

NOON = datetime(2026, 5, 16, 12, 0, 0, 123456, tzinfo=UTC)
TABLES = {
    "numbers": pa.table({"a": pa.array([1, None, 3], pa.int32()), "b": [1.5, None, -0.0]}),
    "decimals": pa.table({"d": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2))}),
    "moments": pa.table(
        {
            "zoned": pa.array([NOON, None], pa.timestamp("us", "UTC")),
            "bare": pa.array([NOON.replace(tzinfo=None), None], pa.timestamp("ms")),
            "day": pa.array([date(2026, 5, 16), None]),
            "hour": pa.array([time(12, 30), None], pa.time64("us")),
            "span": pa.array([timedelta(hours=1), None]),
        }
    ),
    "nested": pa.table({"s": [{"x": 1, "y": [1.5, None]}, None], "l": [[{"z": "a"}], []]}),
    "dictionary": pa.table({"c": pa.array(["a", "b", None, "a"]).dictionary_encode()}),
    "views": pa.table(
        {
            "s": pa.array(["a", None, "a text that is not short"], pa.string_view()),
            "d": pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["x", "y"], pa.string_view())),
        }
    ),
    "nulls": pa.table({"n": pa.nulls(3)}),
    "bytes": pa.table({"b": [b"\x00\xff", None]}),
    "no rows": pa.table({"a": pa.array([], pa.int64()), "s": pa.array([], pa.string())}),
    "no columns": pa.table({}),
    "chunks": pa.concat_tables([pa.table({"a": [1]}), pa.table({"a": [2, 3]})]),
    "chunks of dictionaries": pa.table(
        {"c": pa.chunked_array([pa.array(["a"]).dictionary_encode(), pa.array(["b"]).dictionary_encode()])}
    ),
    "a slice": pa.table({"a": list(range(10))}).slice(3, 4),
    "metadata": pa.table({"a": [1]}).replace_schema_metadata({"mine": "kept"}),
}


def stored(value: Any) -> Any:
    """The value after it was written to storage and read again."""
    table = stored_table(value)
    assert table is not None
    return value_in(table_in(b"".join(feather_pieces(table))))


class TestReading:
    def test_a_table_is_a_mapping_of_columns_rows_and_count(self) -> None:
        value = TableValue(pa.table({"a": [1, 2], "s": ["x", "y"]}))
        assert list(value) == ["columns", "rows", "row_count"]
        assert value["columns"] == ["a", "s"]
        assert value["row_count"] == len(value["rows"]) == 2
        assert value["rows"][1] == value["rows"][-1] == {"a": 2, "s": "y"}
        assert "data" not in value
        assert value.plain() == {
            "columns": ["a", "s"], "rows": [{"a": 1, "s": "x"}, {"a": 2, "s": "y"}], "row_count": 2,
        }  # fmt: skip

    def test_rows_outside_are_not_there(self) -> None:
        rows = Rows(pa.table({"a": [1]}))
        for place in (1, -2):
            with pytest.raises(IndexError):
                rows[place]

    def test_a_slice_of_rows_is_a_view(self) -> None:
        table = pa.table({"a": list(range(5000))})
        some = Rows(table)[1000:1003]
        assert isinstance(some, Rows)
        assert some.plain() == [{"a": 1000}, {"a": 1001}, {"a": 1002}]
        assert Rows(table)[4998::-2499] == [{"a": 4998}, {"a": 2499}, {"a": 0}]
        assert sum(row["a"] for row in Rows(table)) == sum(range(5000))

    def test_a_row_is_read_without_the_others(self) -> None:
        rows = Rows(pa.table({"a": [1, 2], "moment": pa.array([1, 10**18], pa.timestamp("ns"))}))
        with pytest.raises(InvalidInput, match="column 'moment'"):  # one nanosecond has no JSON form
            rows[0]
        assert rows[1]["a"] == 2

    def test_cells_are_what_code_would_have_returned(self) -> None:
        assert Rows(TABLES["decimals"]).plain() == [{"d": 1.5}, {"d": None}]
        assert Rows(TABLES["moments"].drop(["span"]))[0] == {
            "zoned": "2026-05-16T12:00:00.123456+00:00",
            "bare": "2026-05-16T12:00:00.123000",
            "day": "2026-05-16",
            "hour": "12:30:00",
        }
        assert Rows(pa.table({"f": [math.nan, math.inf, 1.0], "l": [[math.nan], [], None]})).plain() == [
            {"f": "nan", "l": ["nan"]}, {"f": "inf", "l": []}, {"f": 1.0, "l": None},
        ]  # fmt: skip
        assert Rows(TABLES["dictionary"]).plain() == [{"c": "a"}, {"c": "b"}, {"c": None}, {"c": "a"}]

    @pytest.mark.parametrize("name", sorted(TABLES.keys() - {"moments"}))
    def test_every_table_has_a_json_form(self, name: str) -> None:
        value = TableValue(TABLES[name])
        assert canonical.decode(canonical.encode(value)) == value.plain()

    def test_a_column_without_a_json_form_is_named(self) -> None:
        with pytest.raises(InvalidInput, match="column 'span' has no exact JSON form"):
            Rows(TABLES["moments"]).plain()

    def test_what_its_head_shows(self) -> None:
        assert TableValue(pa.table({"a": [1]})).head() == {"columns": ["a"], "row_count": 1, "rows": [{"a": 1}]}
        assert TableValue(pa.table({"a": list(range(16))})).head() == {"columns": ["a"], "row_count": 16}
        assert "rows" not in TableValue(TABLES["moments"]).head()

    def test_its_size_is_known_before_it_is_decoded(self) -> None:
        assert TableValue(pa.table({"a": [1, 2], "b": [3, 4]})).size >= 2 * 3


class TestStorage:
    @pytest.mark.parametrize("name", TABLES)
    def test_a_table_comes_back_as_the_same_table(self, name: str) -> None:
        back = stored(TableValue(TABLES[name]))
        assert isinstance(back, TableValue)
        assert back.native
        assert back.arrow.equals(TABLES[name].unify_dictionaries())
        assert back.arrow.schema.equals(TABLES[name].schema, check_metadata=True)

    def test_a_table_that_was_stored_before_is_marked_anew(self) -> None:
        """Code may return a table that it has read from storage, mark and shape included."""
        once = table_of({"rows": [{"a": 1}], "columns": ["a"], "more": True})
        assert once is not None
        again = stored(TableValue(once))
        assert again.plain() == {"columns": ["a"], "rows": [{"a": 1}], "row_count": 1}

    def test_metadata_of_others_is_kept(self) -> None:
        assert stored(TableValue(TABLES["metadata"])).arrow.schema.metadata[b"mine"] == b"kept"

    @pytest.mark.parametrize(
        "value",
        [
            [{"a": 1, "b": "x"}, {"a": 2, "b": None}],
            {"rows": [{"a": 1}], "columns": ["a"], "status": "success", "data": [{"a": 1}]},
        ],
    )
    def test_json_that_was_stored_as_a_table_is_json_again(self, value: Any) -> None:
        assert stored(value) == value
        table = table_of(value)
        assert table is not None
        assert TableValue(table, native=False).plain() == value

    def test_what_is_no_table_is_not_made_one(self) -> None:
        assert stored_table({"a": 1}) is None

    def test_a_json_value_that_lies_in_a_table_is_read_like_that_value(self) -> None:
        table = table_of({"rows": [[1], [2]], "columns": ["a"], "status": "success"})
        assert table is not None
        value = TableValue(table, native=False)
        assert value["status"] == "success"
        assert value["rows"] == [[1], [2]]
        assert sorted(value) == ["columns", "rows", "status"]
        assert value.whole() == value.plain() == stored(value)


class TestBundles:
    """The result of a pipeline holds the tables of its tasks, some of them several times."""

    def test_tables_inside_of_a_result_stay_tables(self) -> None:
        first, second = TableValue(TABLES["decimals"]), TableValue(TABLES["nested"])
        result = Composite(
            {
                "status": "ok",
                "rows": second["rows"],
                "_prev": second,
                "results": {"a": first, "b": second},
                "ctx": {"n": 1},
            }
        )
        back = stored(result)
        assert back["results"]["a"].arrow.equals(first.arrow)
        assert back["results"]["b"].arrow.equals(second.arrow)
        assert back["_prev"].arrow is back["results"]["b"].arrow
        assert isinstance(back["rows"], Rows)
        assert back.plain() == result.plain()
        assert (back["status"], back["ctx"]) == ("ok", {"n": 1})

    def test_each_table_is_stored_once(self) -> None:
        table = TableValue(pa.table({"s": ["x" * 1000] * 100}))
        once, twice = (stored_table(Composite({str(n): table for n in range(times)})) for times in (1, 2))
        assert once is not None
        assert twice is not None
        assert twice.nbytes - once.nbytes < 1000

    def test_a_state_with_tables_waits_as_json(self) -> None:
        table = TableValue(TABLES["decimals"])
        state = {"results": {"a": table}, "previous": table, "place": 1}
        packed = pack(state)
        back = unpack(canonical.decode(canonical.encode(packed)))
        assert back["place"] == 1
        assert back["previous"].arrow.equals(table.arrow)
        assert back["results"]["a"].arrow.equals(table.arrow)

    def test_a_state_without_is_itself(self) -> None:
        state = {"results": {"a": {"$tables": "x"}}}
        assert unpack(state) is state
