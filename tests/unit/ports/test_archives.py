"""One digest of where streams end."""

from __future__ import annotations

import msgspec

from noetl.kernel.chain import StreamHead
from noetl.ports.archives import heads_digest

HEADS = [
    StreamHead("acme", f"execution/{number}", number, 7, number, "ab" * 32, "2026-03-02T08:00:00.000000Z")
    for number in (1, 2, 3)
]


def test_the_order_and_what_only_this_ledger_knows_do_not_matter() -> None:
    sealed = [msgspec.structs.replace(head, mac="cd" * 32, sealed=True) for head in reversed(HEADS)]
    assert heads_digest(sealed) == heads_digest(HEADS)
    empty = StreamHead("acme", "execution/1/stage/2", 0, 0, 0, "00" * 32, "")
    assert heads_digest([*HEADS, empty]) == heads_digest(HEADS)


def test_every_event_more_or_other_changes_it() -> None:
    before = heads_digest(HEADS)
    for changed in ({"count": 9}, {"version": 9}, {"chain_hash": "ef" * 32}, {"stream_id": "execution/9"}):
        assert heads_digest([*HEADS[:2], msgspec.structs.replace(HEADS[2], **changed)]) != before
    assert heads_digest(HEADS[:2]) != before
