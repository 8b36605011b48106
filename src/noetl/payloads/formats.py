"""The forms in which values lie in storage: Arrow stream, Feather, and JSON under zstd. The first bytes tell which.

Writers give pieces and readers take pieces, so that neither side holds more than a batch, or an item, at a time.
Feather is Arrow's file format: its reader needs the end first, so it reads a file or bytes, never a stream.
"""

from __future__ import annotations

import codecs
import io
import json
import mmap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import zstandard

from noetl.errors import InvalidInput
from noetl.kernel import canonical

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "MEDIA_TYPES",
    "Codec",
    "Format",
    "batches_in",
    "batches_of_stream",
    "codec_of",
    "feather_bytes",
    "feather_pieces",
    "json_items",
    "json_of",
    "json_pieces",
    "schema_in",
    "sniff",
    "stream_pieces",
    "table_in",
]

Codec = Literal["lz4", "zstd"]
Format = Literal["feather", "stream", "json", "zstd"]

MEDIA_TYPES: dict[Format, str] = {
    "feather": "application/vnd.apache.arrow.file",
    "stream": "application/vnd.apache.arrow.stream",
    "json": "application/json",
    "zstd": "application/json+zstd",
}

_BATCH_BYTES = 8 << 20
_QUICK_BYTES = 64 << 10
_PIECE_BYTES = 1 << 20
_MOST_JSON_BYTES = 1 << 30
_LEVEL = 3
_FEATHER_MAGIC = b"ARROW1\0\0"
_STREAM_MAGIC = b"\xff\xff\xff\xff"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_JSON_STARTS = frozenset(b'{["-0123456789tfn')
_BLANKS = " \t\r\n"


def sniff(head: bytes) -> Format | None:
    """The format of bytes that begin with `head`, of which eight are enough; None for any other."""
    if head.startswith(_FEATHER_MAGIC):
        return "feather"
    if head.startswith(_STREAM_MAGIC):
        return "stream"
    if head.startswith(_ZSTD_MAGIC):
        return "zstd"
    text = head.lstrip(_BLANKS.encode())
    return "json" if text and text[0] in _JSON_STARTS else None


# --- Arrow -------------------------------------------------------------------------------------------------


def feather_pieces(table: pa.Table) -> Iterator[bytes]:
    """The table as a Feather V2 file, compressed with zstd, a batch at a time."""
    import pyarrow as pa

    # A file has one dictionary per column; the chunks of a table may each bring their own.
    table = table.unify_dictionaries()
    options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
    sink = _Sink()
    with pa.ipc.new_file(pa.PythonFile(sink, mode="w"), table.schema, options=options) as writer:
        for batch in _batches(table):
            writer.write_batch(batch)
            yield from sink.drain()
    yield from sink.drain()


def codec_of(table: pa.Table) -> Codec:
    """What a table is compressed with: of a small one zstd saves little, and takes longer than all else."""
    return "lz4" if table.get_total_buffer_size() < _QUICK_BYTES else "zstd"


def feather_bytes(table: pa.Table, codec: Codec = "zstd") -> bytes:
    """The same file of a table that is small."""
    import pyarrow as pa

    table = table.unify_dictionaries()
    options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        for batch in _batches(table):
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def stream_pieces(
    source: pa.Table | pa.RecordBatchReader, *, compression: Literal["lz4", "zstd"] | None = None
) -> Iterator[bytes]:
    """A table, or a reader of any length, as an Arrow IPC stream, a batch at a time."""
    import pyarrow as pa

    batches = _batches(source) if isinstance(source, pa.Table) else iter(source)
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    sink = _Sink()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), source.schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield from sink.drain()
    yield from sink.drain()


def table_in(data: bytes | mmap.mmap | pa.Buffer) -> pa.Table:
    """The table that the bytes are: Feather or an Arrow stream. Nothing is copied that is not compressed."""
    import pyarrow as pa

    view = pa.py_buffer(data)
    with _reading("the bytes"):
        table: pa.Table = _opened(_form(view), view).read_all()
        table.validate()
        return table


def schema_in(data: bytes | mmap.mmap | pa.Buffer) -> pa.Schema:
    """The columns of a Feather file or an Arrow stream; none of its rows is decoded."""
    import pyarrow as pa

    view = pa.py_buffer(data)
    with _reading("the bytes"):
        schema: pa.Schema = _opened(_form(view), view).schema
        return schema


def batches_in(data: bytes | mmap.mmap | pa.Buffer) -> Iterator[pa.RecordBatch]:
    """The batches of a Feather file or an Arrow stream, one decoded at a time. The bytes may be a mapped file."""
    import pyarrow as pa

    view = pa.py_buffer(data)
    with _reading("the bytes"):
        form = _form(view)
        reader = _opened(form, view)
        if form == "stream":
            yield from reader
            return
        for index in range(reader.num_record_batches):
            yield reader.get_batch(index)


def batches_of_stream(pieces: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """The batches of an Arrow stream that arrives in pieces."""
    import pyarrow as pa

    with _reading("the stream"), pa.ipc.open_stream(pa.PythonFile(_Source(pieces), mode="r")) as reader:
        yield from reader


def _form(view: pa.Buffer) -> Format | None:
    return sniff(view.slice(0, min(8, view.size)).to_pybytes())


def _opened(form: Format | None, source: Any) -> Any:
    import pyarrow as pa

    if form == "feather":
        return pa.ipc.open_file(source)
    if form == "stream":
        return pa.ipc.open_stream(source)
    raise InvalidInput(
        "not an Arrow table: neither Feather nor an Arrow stream", hint="read it as what it was stored as"
    )


def _batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The table in batches of a bounded number of bytes, each a view of it."""
    if not table.num_rows:
        return iter(table.to_batches())
    rows = max(1, table.num_rows * _BATCH_BYTES // max(1, table.nbytes))
    return iter(table.to_batches(max_chunksize=rows))


@contextmanager
def _reading(what: str) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInput(f"{what} cannot be read as Arrow: {first}") from None


class _Sink(io.RawIOBase):
    """Collects what a writer writes until somebody takes it away."""

    def __init__(self) -> None:
        self._parts: list[Any] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        import pyarrow as pa

        # A buffer of Arrow's is its own owner and stays as it is; anything else may be used again after this call.
        self._parts.append(data if isinstance(data, pa.Buffer) else bytes(data))
        return len(self._parts[-1])

    def drain(self) -> Iterator[bytes]:
        if self._parts:
            joined = b"".join(self._parts)
            self._parts.clear()
            yield joined


class _Source(io.RawIOBase):
    """Pieces as a file that can be read once."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Exactly `size` bytes unless the pieces end, because Arrow takes a short read for the end."""
        parts: list[bytes] = []
        missing = size if size >= 0 else -1
        while missing and self._more():
            part = self._rest if missing < 0 else self._rest[:missing]
            self._rest = self._rest[len(part) :]
            parts.append(bytes(part))
            missing -= len(part) if missing > 0 else 0
        return b"".join(parts)

    def readinto(self, room: Any) -> int:
        part = self._rest[: len(room)] if self._more() else self._rest
        room[: len(part)] = part
        self._rest = self._rest[len(part) :]
        return len(part)

    def _more(self) -> bool:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return False
            self._rest = memoryview(piece)
        return True


# --- JSON --------------------------------------------------------------------------------------------------


def json_pieces(value: Any) -> Iterator[bytes]:
    """The canonical JSON of a value under zstd; of a list, or an iterator, item by item."""
    squeeze = zstandard.ZstdCompressor(level=_LEVEL).compressobj()
    for text in _texts(value):
        if piece := squeeze.compress(text):
            yield piece
    yield squeeze.flush()


def json_of(data: bytes, *, most_bytes: int = _MOST_JSON_BYTES) -> Any:
    """The value of JSON, with or without zstd. More than `most_bytes` of text are refused before they fill memory."""
    if sniff(data[:8]) == "zstd":
        try:
            with zstandard.ZstdDecompressor().stream_reader(data) as reader:
                text = reader.read(most_bytes + 1)
        except zstandard.ZstdError as error:
            raise InvalidInput(f"the bytes cannot be decompressed: {error}") from None
    else:
        text = data
    if len(text) > most_bytes:
        raise InvalidInput(f"JSON of more than {most_bytes} bytes", hint="read it item by item")
    return canonical.decode(text)


def json_items(pieces: Iterable[bytes]) -> Iterator[Any]:
    """The items of a JSON array that arrives in pieces, with or without zstd, one in memory at a time."""
    scan = _Scan(_decoded(pieces))
    if scan.character() != "[":
        raise InvalidInput("not a JSON array", hint="read the value as a whole")
    scan.skip()
    if scan.character() == "]":
        return
    while True:
        yield scan.item()
        match scan.character():
            case ",":
                scan.skip()
            case "]":
                return
            case other:
                raise InvalidInput(f"a JSON array that goes on with {other!r} after an item, or ends without ']'")


class _Scan:
    """A window on text that moves forward."""

    def __init__(self, texts: Iterator[str]) -> None:
        self._texts = texts
        self._text = ""
        self._at = 0
        self._decoder = json.JSONDecoder(object_pairs_hook=_distinct, parse_constant=_refuse)

    def character(self) -> str:
        """The next one that is no blank, which stays; nothing at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _BLANKS:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._grow(1):
                return ""

    def skip(self) -> None:
        self._at += 1

    def item(self) -> Any:
        """The next value. A number at the end of the window may go on, so what follows it must be in sight."""
        self.character()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._grow(len(self._text) - self._at):
                    raise InvalidInput(f"not JSON: {error.msg}") from None
                continue
            if end < len(self._text) or not self._grow(1):
                self._at = end
                return value

    def _grow(self, at_least: int) -> bool:
        """Bring more into the window; twice as much each time, or a long item would be begun again and again."""
        parts = [self._text[self._at :]]
        grown = 0
        while grown < max(1, at_least) and (text := next(self._texts, None)) is not None:
            parts.append(text)
            grown += len(text)
        self._text, self._at = "".join(parts), 0
        return grown > 0


def _texts(value: Any) -> Iterator[bytes]:
    if not isinstance(value, list | tuple | Iterator):
        yield canonical.encode(value)
        return
    pending = bytearray(b"[")
    for index, item in enumerate(value):
        pending += b"," if index else b""
        pending += canonical.encode(item)
        if len(pending) >= _PIECE_BYTES:
            yield bytes(pending)
            pending.clear()
    yield bytes(pending + b"]")


def _decoded(pieces: Iterable[bytes]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for piece in _inflated(pieces):
            if text := decoder.decode(piece):
                yield text
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"not JSON: {error}") from None


def _inflated(pieces: Iterable[bytes]) -> Iterator[bytes]:
    source = iter(pieces)
    head = b""
    while len(head) < len(_ZSTD_MAGIC) and (piece := next(source, None)) is not None:
        head += piece
    whole = _Source(_chain(head, source))
    if sniff(head) != "zstd":
        while piece := whole.read(_PIECE_BYTES):
            yield piece
        return
    try:
        with zstandard.ZstdDecompressor().stream_reader(io.BufferedReader(whole)) as reader:
            while piece := reader.read(_PIECE_BYTES):
                yield piece
    except zstandard.ZstdError as error:
        raise InvalidInput(f"the bytes cannot be decompressed: {error}") from None


def _chain(head: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield head
    yield from rest


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidInput("a JSON object in which a key appears twice")
    return found


def _refuse(name: str) -> Any:
    raise InvalidInput(f"{name} has no JSON form")
