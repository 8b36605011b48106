"""What a bundle tells of its events beside the events themselves, gathered while they pass by.

Everything here follows from the events, so that archiving the same history again gives the same bytes; only what tasks
have printed comes from elsewhere, and explains without proving anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import zstandard

from noetl.archive.buffer import StreamEnd
from noetl.archive.bundle.layout import ArchivedExecution
from noetl.archive.bundle.segments import LEVEL
from noetl.errors import IntegrityMismatch, StreamSealed, VersionConflict
from noetl.kernel.chain import StreamHead
from noetl.kernel.event import Envelope, Json
from noetl.kernel.fold import State, apply, new_state
from noetl.kernel.fold.rows import CommandRow, ExecutionRow, FrameRow, StageRow
from noetl.kernel.stamp import adopt
from noetl.kernel.streams import execution_of, root_of
from noetl.kernel.tail import Stream
from noetl.kernel.time import parse_time
from noetl.kernel.upcast import UpcasterRegistry
from noetl.kernel.vocabulary import canonical_type

__all__ = ["LineLog", "Story"]

_OF_WORKERS = frozenset({"command", "call", "frame", "batch"})


class LineLog:
    """Lines of JSON in one zstd frame; only what is compressed is held."""

    def __init__(self) -> None:
        self._frame = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compressobj()
        self._done: list[bytes] = []

    def add(self, line: Any) -> None:
        """Take one line."""
        self._done.append(self._frame.compress(msgspec.json.encode(line) + b"\n"))

    def close(self) -> bytes:
        """The whole of it."""
        return b"".join((*self._done, self._frame.flush()))


class Story:
    """Takes the events of a family, execution by execution, and proves them on the way.

    What it remembers grows with commands, stages and frames, not with events.
    """

    def __init__(self, registry: UpcasterRegistry) -> None:
        self._registry = registry
        self._states: dict[Stream, State] = {}
        self._counts: dict[Stream, int] = {}
        self._types: Counter[str] = Counter()
        self._principals: set[str] = set()
        self._producers: set[str] = set()
        self.heads: dict[Stream, StreamHead | None] = {}
        self.last_time = ""
        self.events = 0
        self.control, self.work = LineLog(), LineLog()

    def take(self, event: Envelope) -> None:
        """Take one event. Raises IntegrityMismatch, InvalidEvent naming it."""
        try:
            adopt(event, self.heads)
        except (VersionConflict, StreamSealed) as error:
            raise IntegrityMismatch(f"event {event.event_id}: {error.message}") from None
        root = Stream(event.tenant_id, root_of(event.stream_id))
        state = self._states.setdefault(root, new_state(root.stream_id))
        apply(state, self._registry.upcast(event))
        for _, _, row in state.take_changed():
            if isinstance(row, CommandRow):
                row.result = None  # up to 64 KiB for each command, and nobody asks this state for them
        kind = canonical_type(event.event_type)
        self._types[kind] += 1
        self._counts[root] = self._counts.get(root, 0) + 1
        self._principals.add(event.principal)
        self._producers.add(event.producer)
        self.last_time = max(self.last_time, event.ingest_time)
        self.events += 1
        log = self.work if kind.partition(".")[0] in _OF_WORKERS else self.control
        log.add(_line(event, kind))

    def root(self) -> ExecutionRow:
        """What has become of the execution at the top."""
        return self._rows()[0]

    def executions(self) -> tuple[ArchivedExecution, ...]:
        """What the manifest says of each of them."""
        found, first = [], 0
        for root, row in zip(self._states, self._rows(), strict=True):
            events = self._counts[root]
            found.append(
                ArchivedExecution(
                    execution_id=str(execution_of(root.stream_id)),
                    parent_execution_id=_text(row.parent_execution_id),
                    path=row.path,
                    document_sha256=(row.document or {}).get("sha256"),
                    status=row.status or "PENDING",
                    started_at=row.started_at,
                    ended_at=row.ended_at,
                    first=first,
                    events=events,
                    streams=self._ends(root),
                )
            )
            first += events
        return tuple(found)

    def metrics(self, payloads: Sequence[Mapping[str, Any]]) -> Json:
        """Counts and durations."""
        commands = self._all("commands", CommandRow)
        frames = self._all("frames", FrameRow)
        return {
            "schema": "noetl.archive.metrics/1",
            "executions": [
                {
                    "execution_id": _text(row.execution_id),
                    "status": row.status,
                    "duration_ms": _milliseconds(row.started_at, row.ended_at),
                    "events": self._counts[root],
                    "steps_entered": row.steps_entered,
                }
                for root, row in zip(self._states, self._rows(), strict=True)
            ],
            "events": {"total": self.events, "by_type": dict(self._types)},
            "commands": {kind: _work(rows) for kind, rows in _grouped(commands, "kind").items()},
            "steps": {step: _work(rows) for step, rows in _grouped(commands, "step").items()},
            "stages": [_stage(row) for row in self._all("stages", StageRow)],
            "frames": {
                "by_status": dict(Counter(row.status for row in frames)),
                "attempts": sum(row.attempts for row in frames),
                "rows": sum(row.row_count for row in frames if row.status == "COMMITTED"),
            },
            "workers": sorted({row.worker_id for row in commands if row.worker_id}),
            "payloads": {"objects": len(payloads), "bytes": sum(ref["bytes"] for ref in payloads)},
        }

    def lineage(self, outputs: Sequence[Json]) -> Json:
        """Which documents ran, who called whom, and what was made."""
        rows = self._rows()
        return {
            "schema": "noetl.archive.lineage/1",
            "executions": [
                {
                    "execution_id": _text(row.execution_id),
                    "path": row.path,
                    "document": row.document,
                    "forked_from": row.forked_from,
                }
                for row in rows
            ],
            "calls": [
                {"from": _text(row.parent_execution_id), "to": _text(row.execution_id)}
                for row in rows
                if row.parent_execution_id is not None
            ],
            "outputs": list(outputs),
            "producers": sorted(self._producers),
        }

    def access(self) -> Json:
        """Who asked for it, and on whose authority it ran."""
        return {
            "schema": "noetl.archive.access/1",
            "principals": sorted(self._principals),
            "executions": [
                {
                    "execution_id": _text(row.execution_id),
                    "tenant_id": row.tenant_id,
                    "organization_id": row.organization_id,
                    "project_id": row.project_id,
                    "principal": row.principal,
                    "authority": row.authority,
                }
                for row in self._rows()
            ],
        }

    def _rows(self) -> list[ExecutionRow]:
        return [state.root for state in self._states.values()]

    def _all(self, surface: str, kind: type[Any]) -> list[Any]:
        return [row for state in self._states.values() for _, row in state.rows(surface) if isinstance(row, kind)]

    def _ends(self, root: Stream) -> tuple[StreamEnd, ...]:
        heads = [
            head
            for stream, head in self.heads.items()
            if head is not None and head.count and root_of(stream.stream_id) == root.stream_id
        ]
        return tuple(
            StreamEnd(stream_id=head.stream_id, version=head.version, count=head.count, chain_hash=head.chain_hash)
            for head in sorted(heads, key=lambda head: head.stream_id)
        )


def _line(event: Envelope, kind: str) -> Json:
    error = event.payload.get("error")
    line: Json = {
        "time": event.event_time,
        "event_id": str(event.event_id),
        "execution_id": _text(event.execution_id),
        "type": kind,
        "step": event.node_name,
        "status": event.status,
        "attempt": event.attempt,
        "command_id": _text(event.command_id),
        "worker_id": event.meta.get("worker_id"),
        "producer": event.producer,
        "error": error,
    }
    return {name: value for name, value in line.items() if value is not None}


def _grouped(commands: Iterable[CommandRow], field: str) -> dict[str, list[CommandRow]]:
    groups: dict[str, list[CommandRow]] = {}
    for row in commands:
        groups.setdefault(getattr(row, field) or "", []).append(row)
    return groups


def _work(rows: Sequence[CommandRow]) -> Json:
    spent = [_milliseconds(row.started_at or row.issued_at, row.ended_at) for row in rows]
    return {
        "commands": len(rows),
        "by_status": dict(Counter(row.status for row in rows)),
        "abandoned": sum(row.abandons for row in rows),
        "duration_ms": sum(one for one in spent if one is not None),
    }


def _stage(row: StageRow) -> Json:
    return {
        "stage_id": str(row.stage_id),
        "step": row.step,
        "kind": row.kind,
        "status": row.status,
        "committed": row.committed,
        "abandoned": row.abandoned,
        "rows": row.rows,
        "duration_ms": _milliseconds(row.started_at, row.ended_at),
    }


def _milliseconds(start: str | None, end: str | None) -> int | None:
    return None if start is None or end is None else (parse_time(end) - parse_time(start)) // 1000


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)
