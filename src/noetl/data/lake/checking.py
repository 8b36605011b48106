"""Whether a lake is what it says: every position once, every file as it was committed, every event the ledger's.

Files are read one after the other, part by part. Of each window of positions only a sum is kept, of hashes over
position and checksum, which comes to the same in whatever order the rows came; the ledger's sum has to be the same.
Only where it is not are rows looked at one by one, to name what is wrong.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from noetl.data.lake.layout import bucket_of, envelope_of
from noetl.data.lake.log import File, Lake
from noetl.data.lake.reading import Damaged, check_content, read_file
from noetl.data.lake.syncing import recognise
from noetl.data.source.log import EventLog, LogSpec, open_log
from noetl.errors import IntegrityMismatch
from noetl.kernel.chain import extend, genesis
from noetl.kernel.event import checksum_of, record_of

__all__ = ["Problem", "Verified", "verify"]

_WINDOW = 65_536
_MODULUS = 1 << 256
_MOST_PROBLEMS = 1000
_COLUMNS = ("position", "root", "tenant_id", "project_id", "ingest_time", "stream_id", "envelope_checksum",
            "chain_hash", "other", "envelope")  # fmt: skip
Tell = Callable[[str, int], None]


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that does not hold."""

    what: str
    file: str | None = None
    position: int | None = None


class Verified(msgspec.Struct, kw_only=True):
    """What was found."""

    head: int
    commits: int
    ledger: int | None
    """Where the ledger ends; None if nobody has asked it."""
    files: int = 0
    bytes: int = 0
    rows: int = 0
    tenants: dict[str, int] = {}
    unproven: int = 0
    """Events with fields of a later release, whose checksums this one cannot make again."""
    problems: list[Problem] = []
    damaged: list[File] = []

    @property
    def ok(self) -> bool:
        """Whether everything holds."""
        return not self.problems


def verify(lake: Lake, spec: LogSpec | None, *, tell: Tell = lambda _phase, _count: None) -> Verified:
    """Look at every row of a lake, and compare it with the ledger of `spec`; without one, with its own chains."""
    check = _Check(lake, tell)
    check.read_log()
    for files in _parts(lake.files()):
        check.read_part(files)
    check.count_positions()
    if spec is not None:
        check.compare(spec)
    return check.found


def _parts(files: Iterable[File]) -> Iterator[list[File]]:
    """Files that hold the same streams, in the order in which these went on."""
    groups: dict[tuple[str, int], list[File]] = defaultdict(list)
    for file in files:
        groups[(file.tenant, file.bucket)].append(file)
    for _, group in sorted(groups.items()):
        yield sorted(group, key=lambda file: (file.date, file.first_position))


class _Check:
    def __init__(self, lake: Lake, tell: Tell) -> None:
        state = lake.snapshot()
        self._lake, self._tell = lake, tell
        self.found = Verified(head=state.last_position, commits=state.commit, ledger=None, tenants=Counter())
        self._times = bytearray(state.last_position + 1)
        self._sums: dict[int, int] = defaultdict(int)

    def read_log(self) -> None:
        """Every commit, from the first on: the list of files is what they come to."""
        for number, _ in enumerate(self._lake.commits(), 1):
            self._tell("commits read", number)

    def read_part(self, files: list[File]) -> None:
        """The rows of one tenant's bucket. The chains of its streams go from file to file."""
        chains: dict[str, str] = {}
        for file in files:
            found = self.found
            found.files, found.bytes = found.files + 1, found.bytes + file.bytes
            try:
                check_content(self._lake, file)
                rows = read_file(self._lake, file, _COLUMNS).to_pylist()
            except Damaged as error:
                found.damaged.append(file)
                self._problem(error.message, file)
                chains.clear()  # what follows cannot be linked to what was not read
                continue
            self._read_rows(file, rows, chains)
            self._tell("events read", found.rows)

    def _read_rows(self, file: File, rows: list[dict[str, Any]], chains: dict[str, str]) -> None:
        found = self.found
        if len(rows) != file.rows:
            self._problem(f"{file.path}: it has {len(rows)} rows, not {file.rows}", file)
        last: tuple[str, int] = ("", 0)
        for row in rows:
            position, checksum = row["position"], row["envelope_checksum"]
            if not 0 < position < len(self._times):
                self._problem(f"{file.path}: position {position} is after the end of the lake", file, position)
                continue
            self._times[position] = min(self._times[position] + 1, 255)
            self._sums[position // _WINDOW] += _hash(position, checksum)
            if wrong := _wrong_place(file, row, last) or self._wrong_event(row, chains):
                self._problem(f"{file.path}: the event at position {position} {wrong}", file, position)
            last = (row["root"], position)
        found.rows += len(rows)
        found.tenants[file.tenant] += len(rows)

    def _wrong_event(self, row: dict[str, Any], chains: dict[str, str]) -> str | None:
        try:
            event = envelope_of(row["envelope"])
        except msgspec.MsgspecError as error:
            return f"cannot be read: {error}"
        if event.envelope_checksum != row["envelope_checksum"] or event.chain_hash != row["chain_hash"]:
            return "has other checksums in its columns than in its envelope"
        if row["other"] is not None:
            self.found.unproven += 1
        elif checksum_of(record_of(event)) != event.envelope_checksum:
            return "does not have its checksum"
        if event.chain_hash is None:
            return None
        before = chains.get(event.stream_id)
        if before is None and event.stream_version == 1:
            before = genesis(event.stream_id)
        chains[event.stream_id] = event.chain_hash
        if before is not None and extend(before, event.envelope_checksum) != event.chain_hash:
            return f"does not follow the one before it in {event.stream_id}"
        return None

    def count_positions(self) -> None:
        """Every position once."""
        if self._times.count(1) == self.found.head:
            return
        spans = [(file.first_position, file.last_position) for file in self.found.damaged]
        for position in range(1, len(self._times)):
            times = self._times[position]
            if times == 1 or (times == 0 and any(first <= position <= last for first, last in spans)):
                continue
            self._problem(f"position {position} is there {times} times" if times else f"position {position} is missing",
                          None, position)  # fmt: skip

    def compare(self, spec: LogSpec) -> None:
        """Every event is the ledger's."""
        try:
            self.found.ledger = recognise(self._lake.snapshot(), spec)
        except IntegrityMismatch as error:
            self._problem(error.message, None)
            return
        with open_log(spec) as log:
            for window in range(self.found.head // _WINDOW + 1):
                first, last = max(1, window * _WINDOW), min(self.found.head, (window + 1) * _WINDOW - 1)
                total = sum(_hash(*one) for page in log.checksums(first - 1, last) for one in page)
                if (total - self._sums[window]) % _MODULUS:
                    self._name_difference(log, first, last)
                self._tell("events compared", last)

    def _name_difference(self, log: EventLog, first: int, last: int) -> None:
        ours = {position: checksum for page in log.checksums(first - 1, last) for position, checksum in page}
        damaged = {file.path for file in self.found.damaged}
        for file in self._lake.files(as_of=last):
            if file.last_position < first or file.path in damaged:
                continue
            for row in read_file(self._lake, file, ("position", "envelope_checksum")).to_pylist():
                position = row["position"]
                if not first <= position <= last or ours.get(position) == row["envelope_checksum"]:
                    continue
                what = "is not the one of the ledger" if position in ours else "is not in the ledger"
                self._problem(f"{file.path}: the event at position {position} {what}", file, position)

    def _problem(self, what: str, file: File | None, position: int | None = None) -> None:
        if len(self.found.problems) < _MOST_PROBLEMS:
            path = None if file is None else file.path
            self.found.problems.append(Problem(what=what, file=path, position=position))


def _hash(position: int, checksum: str) -> int:
    return int.from_bytes(hashlib.sha256(b"%d:%s" % (position, checksum.encode())).digest(), "big")


def _wrong_place(file: File, row: dict[str, Any], last: tuple[str, int]) -> str | None:
    """Whether a row is in the wrong file, or in the wrong place of it."""
    if row["tenant_id"] != file.tenant or row["ingest_time"].date().isoformat() != file.date:
        return "is of another tenant or day than its file"
    if bucket_of(row["tenant_id"], row["project_id"], row["root"]) != file.bucket:
        return "is of another bucket than its file"
    return "is not in order" if (row["root"], row["position"]) <= last else None
