"""Groups: rows brought together by their key, within bounded memory.

Rows are first dealt out to files by a hash of their key, so that each file has whole groups; then each file is put in
the order of its keys. The hash is ours and the same on every machine. A group that is too large to be sorted in memory
is not sorted at all: its rows are written one batch after the other.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from noetl.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Dealer", "Grouped", "sort_into_groups"]

_PART_BYTES = 64 << 20
_MOST_PARTS = 64
_SORTED_BYTES = 512 << 20
"""A file that is larger has a key with too many rows: that is written by itself."""
_SEPARATOR = "\x1f"
_NULL = "\x00"


class Grouped(NamedTuple):
    """Rows in the order of their keys, and how many belong to each."""

    batches: Iterator[pa.RecordBatch]
    groups: list[int]


class Dealer:
    """Deals rows out to files by their key."""

    def __init__(self, by: Sequence[str], directory: Path, size: int) -> None:
        """`size` is about how many bytes there will be."""
        self._by = list(by)
        self._paths = [directory / f"part{number}.arrow" for number in range(min(_MOST_PARTS, 1 + size // _PART_BYTES))]
        self._writers: list[Any] = []
        self._schema: pa.Schema | None = None

    def add(self, table: pa.Table) -> None:
        """Deal out some rows. Raises InvalidInput if they have no such key, or do not fit those before."""
        import pyarrow as pa

        key = key_text(table, self._by)
        if self._schema is None:
            self._schema = table.schema.remove_metadata()
            self._writers = [pa.ipc.new_file(str(path), self._schema) for path in self._paths]
        table = fitted(table, self._schema)
        if len(self._writers) == 1:
            self._writers[0].write_table(table)
            return
        places, pc = _places(key, len(self._writers)), _compute()
        for number, writer in enumerate(self._writers):
            own = table.filter(pc.equal(places, number))
            if own.num_rows:
                writer.write_table(own)

    def finish(self) -> list[Path]:
        """The files, closed; none if nothing was dealt."""
        for writer in self._writers:
            writer.close()
        return self._paths if self._writers else []


def key_text(table: pa.Table, by: Sequence[str]) -> Any:
    """The key of each row as one text, the same for equal keys. Raises InvalidInput."""
    import pyarrow as pa

    pc = _compute()

    missing = [name for name in by if name not in table.schema.names]
    if missing:
        raise InvalidInput(
            f"there is no column {', '.join(missing)} to group by",
            hint=f"the columns are {', '.join(table.schema.names)}",
        )
    try:
        texts = [pc.cast(table.column(name), pa.large_string()) for name in by]
    except pa.ArrowException as error:
        raise InvalidInput(f"rows cannot be grouped by {', '.join(by)}: {str(error).splitlines()[0]}") from None
    separator = pa.scalar(_SEPARATOR, pa.large_string())
    return pc.binary_join_element_wise(*texts, separator, null_handling="replace", null_replacement=_NULL)


def _compute() -> Any:
    """Arrow's kernels, which know more than what is written down of their types."""
    import pyarrow.compute

    return pyarrow.compute


def _places(key: Any, count: int) -> Any:
    import pyarrow as pa

    found = []
    for chunk in key.chunks:
        coded = chunk.dictionary_encode()
        numbers = [zlib.crc32((text or "").encode()) % count for text in coded.dictionary.to_pylist()]
        found.append(pa.array(numbers, pa.int32()).take(coded.indices))
    return pa.chunked_array(found, pa.int32())


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the columns of the first one. Raises InvalidInput where that cannot be."""
    import pyarrow as pa

    if table.schema.equals(schema):
        return table
    columns = []
    for field in schema:
        if field.name not in table.schema.names:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        try:
            columns.append(table.column(field.name).cast(field.type))
        except pa.ArrowException as error:
            raise InvalidInput(
                f"column '{field.name}' is not {field.type} everywhere: {str(error).splitlines()[0]}",
                hint="make the columns the same",
            ) from None
    return pa.table(columns, schema=schema)


def sort_into_groups(path: Path, by: Sequence[str]) -> Grouped:
    """The rows of one file of a dealer, in groups."""
    import pyarrow as pa

    pc = _compute()

    table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    if not table.num_rows:
        return Grouped(iter(()), [])
    key = key_text(table, by)
    counts = {one["values"]: one["counts"] for one in pc.value_counts(key).to_pylist()}
    if len(counts) == 1:
        return Grouped(iter(table.to_batches()), [table.num_rows])
    large: list[str] = []
    if table.nbytes > _SORTED_BYTES:
        large = [text for text, count in counts.items() if count * table.nbytes // table.num_rows > _PART_BYTES]
    rest = table.filter(pc.invert(pc.is_in(key, pa.array(large, key.type)))) if large else table
    order = pc.sort_indices(rest, sort_keys=[(name, "ascending") for name in by])
    ordered = rest.take(order)
    runs = pc.run_end_encode(key_text(ordered, by).combine_chunks()).run_ends.to_pylist() if rest.num_rows else []
    sizes = [end - begin for begin, end in zip([0, *runs], runs, strict=False)]
    return Grouped(_all(ordered, table, key, large), [*sizes, *(counts[text] for text in large)])


def _all(ordered: pa.Table, table: pa.Table, key: Any, large: Sequence[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    pc = _compute()

    yield from ordered.to_batches()
    for text in large:
        first = 0
        for batch in table.to_batches():
            own = key.slice(first, batch.num_rows)
            first += batch.num_rows
            found = pa.Table.from_batches([batch]).filter(pc.equal(own, pa.scalar(text, key.type)))
            yield from found.to_batches()
