"""Tables on their way to code and back, as open files that both processes map.

Going there, a table that lies in a file already (another task's, or shared memory) is passed as that file. Any other is
written to one first. Coming back, a file is trusted only as far as it cannot hurt: it must be sealed, or its writer
dead, and every offset in it is checked before anybody follows one.
"""

from __future__ import annotations

import mmap
import os
import stat
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.errors import InvalidInput
from noetl.kernel.lazy import LazyMapping, LazySequence, is_lazy, plain
from noetl.payloads.arrow import is_below
from noetl.payloads.blocking import in_thread
from noetl.payloads.mapped import Mapped, mapped_file, note
from noetl.tools.python.request import Request
from noetl.tools.python.worker.tables import MOST_DESCRIPTORS, write

if TYPE_CHECKING:
    import pyarrow as pa

    from noetl.payloads.tables import TableValue

__all__ = ["TABLE_MEMORY", "Passing", "TableMemory", "apart"]

TABLE_MEMORY = 1 << 30
"""How much memory the tables of all calls may take together, unless said otherwise; what is beyond goes to disk."""

_SMALL = 64 << 10
"""A table that is smaller is written, or mapped and checked, sooner than a thread begins to."""

Key = str | int
Place = tuple[int, list[Key]]


class Passing:
    """The files that go with a request. They stay open as long as this does."""

    def __init__(self, files: Sequence[Mapped] = ()) -> None:
        self._files = files

    @property
    def descriptors(self) -> list[int]:
        return [one.file.descriptor for one in self._files]


class TableMemory:
    """What there is of memory for tables, and who has it now."""

    def __init__(self, budget: int = TABLE_MEMORY) -> None:
        self._budget = budget
        self._taken = 0
        self._guard = threading.RLock()  # a table may be collected while another is counted

    @property
    def room(self) -> int:
        """How much is left, in bytes."""
        return max(0, self._budget - self._taken)

    async def pack(self, request: Request) -> tuple[Request, Passing]:
        """The request without its tables, and the files they are in. Raises ValueError, InvalidInput and OSError."""
        request, found, places = apart(request)
        if len(found) > MOST_DESCRIPTORS:
            raise ValueError(f"{len(found)} tables are too many for one call (at most {MOST_DESCRIPTORS})")
        files = [await self._file_of(table, request.scratch) for table in found]
        if files:
            sizes = [(one.offset, one.length) for one in files]
            request = msgspec.structs.replace(request, tables={"files": sizes, "places": places})
        return request, Passing(files)

    async def open(self, descriptor: int, length: int) -> TableValue:
        """The table in a file that a process has sent. The descriptor is closed. Raises InvalidInput."""
        from noetl.payloads.tables import TableValue

        try:
            if length < _SMALL:
                return TableValue(self._opened(descriptor, length))
            return TableValue(await in_thread(self._opened, descriptor, length))
        finally:
            os.close(descriptor)

    async def _file_of(self, table: pa.Table, scratch: str) -> Mapped:
        if (known := mapped_file(table)) is not None:
            return known
        if is_below(table, _SMALL):
            return self._written(table, scratch)
        return await in_thread(self._written, table, scratch)

    def _written(self, table: pa.Table, scratch: str) -> Mapped:
        written = write(table, self.room, scratch)
        try:
            known = note(table, written.descriptor, 0, written.bytes)
            self._count(known.file, written.bytes)
        finally:
            os.close(written.descriptor)
        return known

    def _opened(self, descriptor: int, length: int) -> pa.Table:
        import pyarrow as pa

        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size != length or not length:
            raise InvalidInput("the table that the code has returned is not whole", hint="run the task again")
        whole = mmap.mmap(descriptor, length, access=mmap.ACCESS_READ)
        try:
            table = pa.ipc.open_stream(pa.py_buffer(whole)).read_all()
            table.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            raise InvalidInput(
                f"the table that the code has returned is not valid: {error}", hint="build its arrays anew"
            ) from None
        self._count(note(table, descriptor, 0, length).file, length)
        return table

    def _count(self, holder: Any, length: int) -> None:
        """The memory is taken until the last who holds the file has gone."""
        with self._guard:
            self._taken += length
        weakref.finalize(holder, self._give_back, length)

    def _give_back(self, length: int) -> None:
        with self._guard:
            self._taken -= length


def apart(request: Request) -> tuple[Request, list[pa.Table], list[Place]]:
    """A request without its tables, the tables, and where in the request each belongs."""
    found: list[pa.Table] = []
    places: list[Place] = []
    changed: dict[str, Any] = {}
    for name in ("input", "context", "data", "offered"):
        value = getattr(request, name)
        if value is not msgspec.UNSET:
            changed[name] = _without_tables(value, [name], found, places)
    return msgspec.structs.replace(request, **changed), found, places


def _without_tables(value: Any, path: list[Key], found: list[pa.Table], places: list[Place]) -> Any:
    from noetl.payloads.tables import TableValue

    if type(value) is dict:
        return {key: _without_tables(item, [*path, key], found, places) for key, item in value.items()}
    if not is_lazy(value) and not isinstance(value, dict | list):
        return value
    if isinstance(value, LazyMapping):
        value = value.whole()
    if isinstance(value, TableValue):
        index = next((index for index, table in enumerate(found) if table is value.arrow), len(found))
        if index == len(found):
            found.append(value.arrow)
        places.append((index, path))
        return None
    if isinstance(value, dict):
        return {key: _without_tables(item, [*path, key], found, places) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_tables(item, [*path, index], found, places) for index, item in enumerate(value)]
    return plain(value) if isinstance(value, LazySequence) else value
