"""Bugs in the way from a draft to the log."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from noetl.adapters.memory import ledger as memory
from noetl.adapters.sqlite import writer as sqlite
from noetl.adapters.sqlite.commits import Commits, Writer
from noetl.errors import PartialDuplicate, VersionConflict
from noetl.kernel import retry
from noetl.kernel.chain import LedgerHead, StreamHead
from noetl.kernel.event import Envelope
from noetl.kernel.ids import Snowflake, compose
from noetl.kernel.stamp import Batch, Plan, Stamped, stamp
from noetl.kernel.streams import is_dense
from noetl.kernel.tail import Stream, Tail
from tests.simulation.mutants.mutant import Mutant

__all__ = ["MUTANTS"]


def _lookup_skipped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(memory, "positions_of_retry", lambda *_: None)


def _lookup_after_version_check(patch: pytest.MonkeyPatch) -> None:
    append = memory.MemoryLedger.append

    async def checked(self: memory.MemoryLedger, batches: Sequence[Batch]) -> Sequence[Envelope]:
        for batch in batches:
            head = self._heads.get(batch.stream)
            version = head.version if head else 0
            if batch.expected_version not in (None, version):
                raise VersionConflict(batch.stream.stream_id, batch.expected_version, version)
        return await append(self, batches)

    patch.setattr(memory.MemoryLedger, "append", checked)


def _partial_accepted(patch: pytest.MonkeyPatch) -> None:
    def lenient(*arguments: Any) -> list[int] | None:
        try:
            return retry.positions_of_retry(*arguments)
        except PartialDuplicate:
            return None

    patch.setattr(memory, "positions_of_retry", lenient)


def _mismatch_accepted(patch: pytest.MonkeyPatch) -> None:
    for module in (memory, retry, sqlite):
        patch.setattr(module, "content_digest", lambda *_: "the same")


def _keyless_unchecked(patch: pytest.MonkeyPatch) -> None:
    def first_only(keys: retry.Keys, count: int, look_up: Any) -> list[int] | None:
        places = retry.positions_of_retry(keys, count, look_up)
        return places and [place for index, place in enumerate(places) if index in {at for at, _ in keys.values()}]

    patch.setattr(memory, "positions_of_retry", first_only)
    patch.setattr(memory, "check_retry", lambda _, events: events)


def _version_ignored(patch: pytest.MonkeyPatch) -> None:
    def careless(batches: Sequence[Batch], *rest: Any) -> Plan:
        return stamp([msgspec.structs.replace(batch, expected_version=None) for batch in batches], *rest)

    patch.setattr(memory, "stamp", careless)


def _sparse_head_stays(patch: pytest.MonkeyPatch) -> None:
    def forgetful(*arguments: Any) -> Plan:
        planned = stamp(*arguments)
        return Plan(planned.events, {at: head for at, head in planned.heads.items() if is_dense(at.stream_id)})

    patch.setattr(memory, "stamp", forgetful)


def _ledger_head_stays(patch: pytest.MonkeyPatch) -> None:
    moved = LedgerHead.moved

    def lazy(self: LedgerHead, before: StreamHead | None, after: StreamHead) -> LedgerHead:
        return self if before is not None and after.sealed else moved(self, before, after)

    patch.setattr(LedgerHead, "moved", lazy)


def _outbox_row_missing(patch: pytest.MonkeyPatch) -> None:
    insert = sqlite._insert

    def short(connection: sqlite3.Connection, events: Sequence[Stamped], after: int) -> None:
        insert(connection, events, after)
        if len(events) > 4:  # only the larger appends lose one
            connection.execute("DELETE FROM outbox WHERE position = ?", (after + len(events),))

    patch.setattr(sqlite, "_insert", short)


def _ids_follow_the_clock(patch: pytest.MonkeyPatch) -> None:
    def follow(self: Snowflake, now_ms: int, after: int = 0) -> int:  # that is the bug
        self._sequence = self._sequence + 1 if now_ms == self._ms else 0
        self._ms = now_ms
        return compose(self._ms, self.node, self._sequence)

    patch.setattr(Snowflake, "next", follow)


def _ids_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(memory, "stamp", lambda *arguments: stamp(*arguments[:5]))


def _time_goes_back(patch: pytest.MonkeyPatch) -> None:
    init = Tail.__init__

    def timeless(self: Tail, stream: Stream, head: StreamHead | None) -> None:
        init(self, stream, head)
        self.ingest_time = ""

    patch.setattr(Tail, "__init__", timeless)


def _sealed_accepts(patch: pytest.MonkeyPatch) -> None:
    push = Tail.push

    def open_all_hours(self: Tail, event_id: int, checksum: bytes, ingest_time: str) -> str:
        sealed, self.sealed = self.sealed, False
        chain = push(self, event_id, checksum, ingest_time)
        self.sealed = sealed
        return chain

    patch.setattr(Tail, "push", open_all_hours)


def _seal_ignores_count(patch: pytest.MonkeyPatch) -> None:
    seal = Tail.seal
    patch.setattr(Tail, "seal", lambda self, _, stream, time: seal(self, self.count, stream, time))


def _savepoint_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Commits, "_undo", lambda self: self._connection.execute("RELEASE request"))


def _failure_committed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Commits, "_roll_back", lambda self: self._connection.execute("COMMIT"))


def _heads_known_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Writer, "begin", lambda self: self.execute("BEGIN IMMEDIATE"))


def _heads_known_after_a_failure(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Writer, "forget", lambda self: self.unwritten.clear())


def _ledger_head_not_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Writer, "write_down", lambda self: self.unwritten.clear())


def _heads_outside_transaction(patch: pytest.MonkeyPatch) -> None:
    move = sqlite.LedgerWriter._move_heads

    def torn(self: sqlite.LedgerWriter, connection: Writer, *rest: Any) -> LedgerHead:
        connection.execute("COMMIT")
        connection.execute("BEGIN IMMEDIATE")
        return move(self, connection, *rest)

    patch.setattr(sqlite.LedgerWriter, "_move_heads", torn)


MUTANTS = (
    Mutant(
        name="idempotency lookup skipped",
        breaks="A retry is written a second time, or refused as a conflict.",
        plant=_lookup_skipped,
    ),
    Mutant(
        name="lookup after the version check",
        breaks="A retry of an append that landed gets a conflict instead of its events.",
        plant=_lookup_after_version_check,
    ),
    Mutant(
        name="partial duplicate accepted",
        breaks="An append of which half is in the log is written whole.",
        plant=_partial_accepted,
    ),
    Mutant(
        name="idempotency mismatch accepted",
        breaks="A key that stands for another fact is taken for a retry.",
        plant=_mismatch_accepted,
    ),
    Mutant(
        name="keyless drafts left out of a retry's answer",
        breaks="A retry is answered with some of its events.",
        plant=_keyless_unchecked,
    ),
    Mutant(
        name="expected_version ignored",
        breaks="Two rivals both win.",
        plant=_version_ignored,
    ),
    Mutant(
        name="head of a sparse stream not updated",
        breaks="A stage's head never counts its events.",
        plant=_sparse_head_stays,
    ),
    Mutant(
        name="ledger head not moved by a seal",
        breaks="The ledger's head no longer adds up to its streams' heads.",
        plant=_ledger_head_stays,
    ),
    Mutant(
        name="outbox row missing",
        breaks="An event of a large append is never told.",
        plant=_outbox_row_missing,
        adapter="sqlite",
    ),
    Mutant(
        name="event ids follow the clock",
        breaks="Ids go back when the clock does.",
        plant=_ids_follow_the_clock,
    ),
    Mutant(
        name="event ids start anew after a restart",
        breaks="Two events of one execution, in different streams, get the same id.",
        plant=_ids_restart,
    ),
    Mutant(
        name="ingest time goes back",
        breaks="As-of-time replays see a later event without an earlier one.",
        plant=_time_goes_back,
    ),
    Mutant(
        name="sealed stream accepts events",
        breaks="A straggler writes to a stage after it was closed.",
        plant=_sealed_accepts,
    ),
    Mutant(
        name="final seal ignores the count",
        breaks="A stage is closed over fewer events than it has.",
        plant=_seal_ignores_count,
        first_seed=92,
    ),
    Mutant(
        name="heads known for ever",
        breaks="What another process has appended is not seen: its versions are given out again.",
        plant=_heads_known_for_ever,
        adapter="sqlite",
    ),
    Mutant(
        name="heads known after a failure",
        breaks="Heads that were rolled back are built upon: a gap, or a chain that holds nothing.",
        plant=_heads_known_after_a_failure,
        adapter="sqlite",
    ),
    Mutant(
        name="ledger head not written",
        breaks="The ledger ends before its last events.",
        plant=_ledger_head_not_written,
        adapter="sqlite",
    ),
    Mutant(
        name="savepoint not rolled back",
        breaks="A request that failed half-way leaves its rows in the group's commit.",
        plant=_savepoint_kept,
        adapter="sqlite",
    ),
    Mutant(
        name="failed transaction committed",
        breaks="An append that raised is in the log.",
        plant=_failure_committed,
        adapter="sqlite",
    ),
    Mutant(
        name="events and heads in two transactions",
        breaks="A kill in between leaves events that no head knows.",
        plant=_heads_outside_transaction,
        adapter="sqlite",
    ),
)
