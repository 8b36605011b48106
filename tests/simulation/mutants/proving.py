"""Bugs in what proves the log: seals, adoption, verification, the anchor."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import pytest

from noetl.adapters.sqlite import writer as sqlite
from noetl.adapters.sqlite.anchor import Anchor
from noetl.adapters.sqlite.database import Database
from noetl.kernel import stamp
from noetl.kernel.merkle import Merkle
from noetl.kernel.stamp import Stamped
from noetl.replay import verify
from noetl.replay.walk import StreamWalk
from tests.simulation.mutants.mutant import Mutant

__all__ = ["MUTANTS"]


def _chain_unchecked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stamp, "extend", lambda *_: None)
    patch.setattr(stamp, "_check_link", lambda *_: None)


def _keys_not_adopted(patch: pytest.MonkeyPatch) -> None:
    def chunk(connection: sqlite3.Connection, events: Sequence[Stamped], position: int) -> int:
        sqlite._insert(connection, events, position)
        return position + len(events)

    patch.setattr(sqlite, "_adopt_chunk", chunk)


def _peaks_reversed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Merkle, "peaks", property(lambda self: tuple(peak.hex() for peak in reversed(self._peaks))))


def _mac_unchecked(patch: pytest.MonkeyPatch) -> None:
    head_fault, ledger_head = verify.head_fault, verify.check_ledger_head
    patch.setattr(verify, "head_fault", lambda walk, head, _: head_fault(walk, head, None))
    patch.setattr(verify, "check_ledger_head", lambda head, streams, total, _: ledger_head(head, streams, total, None))


def _ledger_mac_unchecked(patch: pytest.MonkeyPatch) -> None:
    ledger_head = verify.check_ledger_head
    patch.setattr(verify, "check_ledger_head", lambda head, streams, total, _: ledger_head(head, streams, total, None))


def _order_unchecked(patch: pytest.MonkeyPatch) -> None:
    """Events are checked one by one, but not that they follow each other."""

    def step(self: StreamWalk, item: Any) -> Any:
        yield from (found for found in original(self, item) if "checksum" in found[1])
        self.chain_hash = item.chain_hash or self.chain_hash

    original = StreamWalk.step
    patch.setattr(StreamWalk, "step", step)


def _commit_order_unchecked(patch: pytest.MonkeyPatch) -> None:
    check = verify.Verifier._check_positions

    async def lenient(self: verify.Verifier, head: Any, found: verify.LedgerVerification) -> None:
        await check(self, head, found)
        found.problems = [problem for problem in found.problems if "order" not in problem.what]

    patch.setattr(verify.Verifier, "_check_positions", lenient)


def _parity_unchecked(patch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: Any) -> None: ...

    patch.setattr(verify.Verifier, "_check_parity", nothing)


def _anchor_unchecked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Anchor, "check", lambda *_: None)


def _emptied_file_opened(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Database, "_check_not_emptied", lambda _: None)


MUTANTS = (
    Mutant(
        name="adopt skips the chain check",
        breaks="A log with a changed event in the middle can be imported.",
        plant=_chain_unchecked,
    ),
    Mutant(
        name="adopt forgets the idempotency keys",
        breaks="A retry after an import is written a second time.",
        plant=_keys_not_adopted,
    ),
    Mutant(
        name="seal continues from its peaks in the wrong order",
        breaks="The second seal of a stream does not match its events.",
        plant=_peaks_reversed,
    ),
    Mutant(
        name="MAC of heads not checked",
        breaks="A well-chained forgery passes.",
        plant=_mac_unchecked,
        adapter="sqlite",
    ),
    Mutant(
        name="MAC of the ledger head not checked",
        breaks="A stream can be deleted together with its head.",
        plant=_ledger_mac_unchecked,
        adapter="sqlite",
    ),
    Mutant(
        name="verify checks events but not their order",
        breaks="Two events can be swapped.",
        plant=_order_unchecked,
        adapter="sqlite",
    ),
    Mutant(
        name="verify does not check the order of commits",
        breaks="Two events of different streams can be swapped.",
        plant=_commit_order_unchecked,
        adapter="sqlite",
    ),
    Mutant(
        name="verify does not compare rows with the log",
        breaks="A changed projection row passes.",
        plant=_parity_unchecked,
        adapter="sqlite",
    ),
    Mutant(
        name="anchor never checked",
        breaks="A write-ahead log that lost its end is opened as if nothing had been there.",
        plant=_anchor_unchecked,
        adapter="sqlite",
    ),
    Mutant(
        name="emptied file opened",
        breaks="Opening a database that lost its content deletes the write-ahead log that still has it.",
        plant=_emptied_file_opened,
        adapter="sqlite",
        first_seed=31,
    ),
)
