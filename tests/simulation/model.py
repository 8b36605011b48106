"""What a ledger should do, in the fewest words: the oracle that every append is held against.

It shares no code with the ledgers. It does not know ids, times or hashes; it knows which appends
land, which are refused and why, and so what the log must say at each position.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

import msgspec

from noetl.kernel.event import Draft, Envelope
from noetl.kernel.stamp import Batch
from noetl.kernel.tail import Stream

__all__ = ["Fact", "Model", "OutboxModel", "Verdict", "fact_of"]

Answer = Literal["written", "stored", "conflict", "partial", "mismatch", "sealed"]


class Fact(msgspec.Struct, frozen=True):
    """What one event says, apart from what the ledger adds to it."""

    stream: Stream
    key: str | None
    content: str


class Verdict(msgspec.Struct, frozen=True):
    """What must come of an append, and at which positions its events are if it is in the log."""

    answer: Answer
    positions: tuple[int, ...] = ()


class Model:
    """A log of facts."""

    def __init__(self) -> None:
        self.log: list[Fact] = []
        self.counts: dict[Stream, int] = {}
        self.sealed: set[Stream] = set()
        self._keys: dict[tuple[str, str], tuple[int, str]] = {}

    def judge(self, batches: Sequence[Batch]) -> Verdict:
        """What must come of an append that arrives now."""
        facts = [fact_of(batch.stream, draft) for batch in batches for draft in batch.drafts]
        first_try = self._first_try(facts)
        if first_try is not None:
            return first_try
        for batch in batches:
            if batch.expected_version not in (None, self.counts.get(batch.stream, 0)):
                return Verdict("conflict")
        return self._stamped(batches)

    def accept(self, batches: Sequence[Batch]) -> Verdict:
        """Judge an append and remember it if it lands."""
        verdict = self.judge(batches)
        if verdict.answer == "written":
            for batch in batches:
                for draft in batch.drafts:
                    self._write(fact_of(batch.stream, draft), draft)
        return verdict

    def _first_try(self, facts: Sequence[Fact]) -> Verdict | None:
        keyed = [(index, fact) for index, fact in enumerate(facts) if fact.key is not None]
        known = [(index, fact, self._keys.get((fact.stream.tenant_id, str(fact.key)))) for index, fact in keyed]
        found = [(index, fact, place) for index, fact, place in known if place is not None]
        if any(place[1] != fact.content for _, fact, place in found):
            return Verdict("mismatch")
        if not found:
            return None
        if len(found) < len(keyed):
            return Verdict("partial")
        first = min(place[0] - index for index, _, place in found)
        positions = tuple(range(first, first + len(facts)))
        if [self.log[position - 1].content for position in positions] != [fact.content for fact in facts]:
            return Verdict("mismatch")
        return Verdict("stored", positions)

    def _stamped(self, batches: Sequence[Batch]) -> Verdict:
        counts, sealed = dict(self.counts), set(self.sealed)
        for batch in batches:
            for draft in batch.drafts:
                if batch.stream in sealed:
                    return Verdict("sealed")
                counts[batch.stream] = counts.get(batch.stream, 0) + 1
                seal = draft.payload.get("seal")
                if seal is not None and seal["final"]:
                    target = Stream(batch.stream.tenant_id, seal["stream_id"])
                    if counts.get(target, 0) != seal["count"]:
                        return Verdict("conflict")
                    sealed.add(target)
        size = sum(len(batch.drafts) for batch in batches)
        return Verdict("written", tuple(range(len(self.log) + 1, len(self.log) + 1 + size)))

    def _write(self, fact: Fact, draft: Draft) -> None:
        self.log.append(fact)
        self.counts[fact.stream] = self.counts.get(fact.stream, 0) + 1
        if fact.key is not None:
            self._keys[fact.stream.tenant_id, fact.key] = (len(self.log), fact.content)
        seal = draft.payload.get("seal")
        if seal is not None and seal["final"]:
            self.sealed.add(Stream(fact.stream.tenant_id, seal["stream_id"]))


class OutboxModel:
    """Which committed events have been told, and who is about to tell which."""

    def __init__(self) -> None:
        self.settled = 0
        self._published: set[int] = set()
        self._due: dict[int, int] = {}
        self._owner: dict[int, str] = {}
        self._attempts: dict[int, int] = {}

    def pending(self, last: int) -> list[int]:
        """Positions that are committed and not told yet."""
        return [place for place in range(self.settled + 1, last + 1) if place not in self._published]

    def claim(self, owner: str, last: int, limit: int, now: int, until: int) -> list[tuple[int, int]]:
        """Positions, with the number of times each was claimed."""
        due = [place for place in self.pending(last) if self._due.get(place, 0) <= now][:limit]
        for place in due:
            self._due[place], self._owner[place] = until, owner
            self._attempts[place] = self._attempts.get(place, 0) + 1
        return [(place, self._attempts[place]) for place in due]

    def publish(self, owner: str, places: Sequence[int]) -> int:
        """The fabric has taken them. How many of them were still the owner's."""
        held = [place for place in places if self._owner.pop(place, None) == owner]
        self._published |= set(held)
        return len(held)

    def fail(self, owner: str, places: Sequence[int], until: int) -> int:
        """They are due again later."""
        held = [place for place in places if self._owner.pop(place, None) == owner]
        for place in held:
            self._due[place] = until
        return len(held)


def fact_of(stream: Stream, said: Draft | Envelope) -> Fact:
    """The fact behind a draft, or behind the envelope that it became."""
    ref = said.payload_ref.sha256 if said.payload_ref else None
    told = [said.event_type, said.execution_id, said.aggregate_type, said.node_name, said.status, said.attempt, ref]
    content = json.dumps([stream.stream_id, *told, said.payload], sort_keys=True)
    return Fact(stream, said.idempotency_key, content)
