"""The forms in storage: told by their first bytes, written and read a piece at a time."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl.errors import InvalidInput
from noetl.kernel import canonical
from noetl.payloads.formats import (
    batches_in,
    batches_of_stream,
    feather_bytes,
    feather_pieces,
    json_items,
    json_of,
    json_pieces,
    sniff,
    stream_pieces,
    table_in,
)

TABLE = pa.table({"a": [1, 2, 3], "b": ["x", None, "ü"]})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def cut(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def joined(pieces: Iterator[bytes]) -> bytes:
    return b"".join(pieces)


class TestSniff:
    @pytest.mark.parametrize(
        ("data", "form"),
        [
            (joined(feather_pieces(TABLE)), "feather"),
            (joined(stream_pieces(TABLE)), "stream"),
            (joined(json_pieces({"a": 1})), "zstd"),
            (b'{"a":1}', "json"),
            (b" \n[1]", "json"),
            (b"-1", "json"),
            (b"null", "json"),
            (b"", None),
            (b"PAR1....", None),
            (b"FEA1....", None),
            (b"\x00\x00", None),
        ],
    )
    def test_eight_bytes_tell(self, data: bytes, form: str | None) -> None:
        assert sniff(data[:8]) == form


class TestArrow:
    def test_both_forms_come_back(self) -> None:
        for pieces in (feather_pieces(TABLE), stream_pieces(TABLE), stream_pieces(TABLE, compression="zstd")):
            data = joined(pieces)
            assert table_in(data) == TABLE
            assert pa.Table.from_batches(batches_in(data)) == TABLE

    def test_a_table_without_rows_comes_back_with_its_columns(self) -> None:
        for empty in (TABLE.slice(0, 0), TABLE.schema.empty_table(), pa.table({})):
            assert table_in(joined(feather_pieces(empty))).schema == empty.schema
            assert table_in(joined(stream_pieces(empty))) == empty

    def test_a_reader_of_any_length_is_written_as_it_comes(self) -> None:
        taken = []

        def batches() -> Iterator[pa.RecordBatch]:
            for number in range(5):
                taken.append(number)
                yield TABLE.to_batches()[0]

        pieces = stream_pieces(pa.RecordBatchReader.from_batches(TABLE.schema, batches()))
        next(pieces)
        assert taken == [0]
        assert joined(pieces)
        assert taken == [0, 1, 2, 3, 4]

    def test_a_stream_is_read_as_it_comes(self) -> None:
        whole = pa.concat_tables([TABLE] * 4)
        data = joined(stream_pieces(whole))
        for size in (1, 7, 1000):
            assert pa.Table.from_batches(batches_of_stream(cut(data, size))) == whole

    def test_chunks_with_dictionaries_of_their_own_become_one_file(self) -> None:
        chunks = [pa.array(words).dictionary_encode() for words in (["a", "b"], ["c"], ["b", None])]
        table = pa.table({"a": pa.chunked_array(chunks)})
        for pieces in (feather_pieces(table), stream_pieces(table)):
            assert table_in(joined(pieces)).to_pylist() == table.to_pylist()

    def test_at_once_or_in_pieces_it_is_the_same_file(self) -> None:
        chunks = [pa.array(words).dictionary_encode() for words in (["a", "b"], ["c"], ["b", None])]
        for table in (TABLE, TABLE.slice(0, 0), pa.table({"a": pa.chunked_array(chunks)})):
            assert feather_bytes(table) == joined(feather_pieces(table))

    def test_a_large_table_is_written_in_bounded_pieces(self) -> None:
        noise = random.Random(7).randbytes(32 << 20)
        table = pa.table({"a": pa.Array.from_buffers(pa.int64(), len(noise) // 8, [None, pa.py_buffer(noise)])})
        for pieces in (feather_pieces(table), stream_pieces(table)):
            sizes = [len(piece) for piece in pieces]
            assert len(sizes) >= 4
            assert max(sizes) < 10 << 20

    def test_uncompressed_columns_are_views_of_the_bytes(self) -> None:
        data = pa.py_buffer(joined(stream_pieces(pa.table({"a": list(range(100_000))}))))
        before = pa.total_allocated_bytes()
        table = table_in(data)
        assert pa.total_allocated_bytes() == before
        assert table["a"][99_999].as_py() == 99_999

    @pytest.mark.parametrize("data", [b"", b"{}", b"ARROW1\0\0", b"ARROW1\0\0" + b"x" * 100, b"\xff" * 12])
    def test_what_is_no_table_is_refused(self, data: bytes) -> None:
        with pytest.raises(InvalidInput, match=r"not an Arrow table|cannot be read as Arrow"):
            table_in(data)
        with pytest.raises(InvalidInput, match=r"not an Arrow table|cannot be read as Arrow"):
            list(batches_in(data))

    def test_a_stream_that_breaks_off_is_refused(self) -> None:
        data = joined(stream_pieces(TABLE))
        with pytest.raises(InvalidInput, match="the stream cannot be read as Arrow"):
            list(batches_of_stream(cut(data[:-100], 10)))


class TestJson:
    @settings(max_examples=100, deadline=None)
    @given(JSON)
    def test_values_come_back(self, value: Any) -> None:
        try:
            text = canonical.encode(value)
        except canonical.NotCanonical:
            return
        data = joined(json_pieces(value))
        assert zstandard.ZstdDecompressor().decompressobj().decompress(data) == text
        assert canonical.encode(json_of(data)) == text == canonical.encode(json_of(text))

    @settings(max_examples=100, deadline=None)
    @given(st.lists(JSON, max_size=5), st.integers(1, 40), st.booleans())
    def test_items_come_back_one_by_one(self, items: list[Any], size: int, compressed: bool) -> None:
        try:
            text = canonical.encode(items)
        except canonical.NotCanonical:
            return
        data = joined(json_pieces(iter(items))) if compressed else text
        assert canonical.encode(list(json_items(cut(data, size)))) == text

    def test_blanks_between_items_do_not_matter(self) -> None:
        assert list(json_items(cut(b' [ 1 ,\n {"a" : [2]} , "]" ] ', 1))) == [1, {"a": [2]}, "]"]
        assert list(json_items([b" [ ] "])) == []

    def test_a_number_that_is_cut_in_two_is_one_number(self) -> None:
        numbers = list(range(500_000))
        text = canonical.encode(numbers)
        assert len(text) > 3 << 20
        assert list(json_items(cut(text, 65_536))) == numbers
        assert list(json_items(json_pieces(numbers))) == numbers

    def test_items_never_lie_in_memory_together(self) -> None:
        data = joined(json_pieces({"n": number, "text": "x" * 100} for number in range(200_000)))
        tracemalloc.start()
        try:
            assert sum(item["n"] for item in json_items(cut(data, 4096))) == sum(range(200_000))
            assert tracemalloc.get_traced_memory()[1] < 16 << 20
        finally:
            tracemalloc.stop()

    @pytest.mark.parametrize(
        ("data", "problem"),
        [
            (b"{}", "not a JSON array"),
            (b"", "not a JSON array"),
            (b"[1", "ends without"),
            (b"[1 2]", "goes on with '2'"),
            (b"[1,", "not JSON"),
            (b"[tru]", "not JSON"),
            (b"[NaN]", "NaN has no JSON form"),
            (b'[{"a":1,"a":2}]', "a key appears twice"),
            (b'["\xff"]', "not JSON"),
            (zstandard.compress(b"[1,2]")[:-3], "without|not JSON|array"),
            (b"\x28\xb5\x2f\xfd" + b"\xff" * 20, "cannot be decompressed"),
        ],
    )
    def test_what_is_no_array_is_refused(self, data: bytes, problem: str) -> None:
        with pytest.raises(InvalidInput, match=problem):
            list(json_items(cut(data, 3)))

    def test_a_bomb_is_refused_before_it_fills_memory(self) -> None:
        bomb = zstandard.compress(b'"' + b"x" * 50_000_000 + b'"')
        with pytest.raises(InvalidInput, match="JSON of more than 1000000 bytes"):
            json_of(bomb, most_bytes=1_000_000)
        with pytest.raises(InvalidInput, match="cannot be decompressed"):
            json_of(b"\x28\xb5\x2f\xfd" + b"\xff" * 20)
