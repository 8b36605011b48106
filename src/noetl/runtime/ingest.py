"""Taking in histories that ran elsewhere: proven first, written as one, and again harmlessly.

The order is what makes a kill at any point harmless. Everything is examined before anything is written; payloads go
first, because they are named by their content and mean nothing until an event refers to them; the events follow in
one transaction. Whoever sends the same again finds the rest done, or everything done.

What becomes of a request is recorded on the tenant's own stream, once: `batch.accepted`, `batch.processing`, and
`batch.completed` or `batch.failed`. A request is named by what it delivers, so a repeated one has the same name.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from noetl.errors import (
    Conflict,
    Forbidden,
    IntegrityMismatch,
    InvalidInput,
    NoetlError,
    NotFound,
    Unavailable,
)
from noetl.kernel import canonical
from noetl.kernel.chain import StreamHead
from noetl.kernel.event import Draft, Envelope, Json, PayloadRef
from noetl.kernel.names import ResultCoordinates
from noetl.kernel.stamp import Batch
from noetl.kernel.streams import execution_stream, is_dense
from noetl.payloads.blocking import PIECE_BYTES, in_thread, storage_errors
from noetl.payloads.results import ResultStore
from noetl.payloads.store import PayloadStore
from noetl.ports.ledger import Stream
from noetl.runtime.delivery import Examined, Owner, Part, examine, owner_of
from noetl.runtime.driver import Origin
from noetl.runtime.embedded.hold import name_of, take
from noetl.runtime.quotas import Quotas
from noetl.runtime.restamp import Restamper
from noetl.runtime.wiring import Embedded

__all__ = ["MOST_ARRIVING", "MOST_BYTES", "BatchProgress", "BatchTaken", "Ingest", "Wanted"]

MOST_BYTES = 8 << 30
MOST_ARRIVING = 64
"""How many deliveries a server receives at once."""
_ID_DIGITS = 32
_STATES = ("accepted", "processing", "failed", "completed")
_ENDED = ("completed", "failed")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a sender says of a delivery beside what is in it."""

    execution_id: int | None = None
    events: int | None = None
    as_tenant: str | None = None


class BatchTaken(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a delivery: `completed`, `already there` when nothing had to be written, or `accepted`.

    `position` is where the last event of the execution's own stream stands in this ledger; 0 if it is still to come.
    """

    status: str
    request_id: str
    execution_id: str
    executions: tuple[str, ...]
    events: int
    written: int
    position: int


class BatchProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a request has come."""

    request_id: str
    status: str
    execution_id: str
    events: int
    error: str | None = None


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery that may be taken, and on whose behalf."""

    request_id: str
    origin: Origin
    execution_id: int
    parts: Sequence[Part]
    examined: Examined
    taken_over: bool

    @property
    def stream(self) -> Stream:
        return Stream(self.origin.tenant_id, execution_stream(self.execution_id))


class Ingest:
    """Takes deliveries into the ledger of one home."""

    def __init__(self, embedded: Embedded, home: Path, quotas: Quotas | None = None) -> None:
        """`quotas` say how many events a tenant may deliver; None where nobody counts them."""
        self._embedded = embedded
        self._quotas = quotas
        self._directory = home / "incoming"
        self._running = home / "running"
        self._arriving = 0

    def sweep(self) -> None:
        """Remove what a server that was killed has left; to be called while none is receiving."""
        shutil.rmtree(self._directory, ignore_errors=True)

    @contextlib.asynccontextmanager
    async def waiting_room(self) -> AsyncIterator[Path]:
        """A directory for one delivery, gone when it has been dealt with. Raises Unavailable when there are many."""
        if self._arriving >= MOST_ARRIVING:
            raise Unavailable(f"{self._arriving} deliveries are just arriving", hint="send it again later")
        self._arriving += 1
        try:
            async with self._room() as place:
                yield place
        finally:
            self._arriving -= 1

    @contextlib.asynccontextmanager
    async def _room(self) -> AsyncIterator[Path]:
        with storage_errors(self._directory):
            await in_thread(self._directory.mkdir, parents=True, exist_ok=True)
            place = Path(await in_thread(tempfile.mkdtemp, dir=self._directory))
        try:
            yield place
        finally:
            await in_thread(shutil.rmtree, place, ignore_errors=True)

    async def take(
        self, parts: Sequence[Part], origin: Origin, wanted: Wanted, *, is_waiting: bool = False
    ) -> BatchTaken:
        """Examine a delivery and write it, or nothing of it; one that `is_waiting` was accepted before.

        Raises InvalidInput or IntegrityMismatch for what is wrong with it in itself, Forbidden for another
        tenant's, Conflict where this ledger has another history of the same execution, QuotaExceeded.
        """
        request = await self._examined(parts, origin, wanted)
        await self._check_missing(request)
        if (done := await self._already(request)) is not None:
            return done
        if not is_waiting:
            await self._charge(request)
        await self._record(request, "accepted")
        await self._record(request, "processing")
        try:
            written = await self._write(request)
        except NoetlError as error:
            if not is_waiting:  # whoever keeps it tries again, or says what has become of it
                with contextlib.suppress(NoetlError):  # a disk that is full for one is full for the other
                    await self._record(request, "failed", error=str(error))
            raise
        await self._record(request, "completed")
        await self._embedded.projector.catch_up()
        return await self._answer(request, "completed", written)

    async def accept(
        self, parts: Sequence[Part], origin: Origin, wanted: Wanted, keep: Callable[[str], Awaitable[None]]
    ) -> BatchTaken:
        """Examine a delivery and have it kept, to be written later. Raises as `take` does.

        `keep` is given the name of the request, and returns when the delivery is durable.
        """
        request = await self._examined(parts, origin, wanted)
        await self._check_missing(request)
        if (done := await self._already(request)) is not None:
            return done
        await self._charge(request)
        await keep(request.request_id)
        await self._record(request, "accepted")
        return self._taken(request, "accepted", 0, 0)

    async def fail(self, origin: Origin, request_id: str, error: NoetlError) -> None:
        """Say that a delivery which was accepted cannot be written after all."""
        accepted = await self._recorded(origin.tenant_id, request_id, "accepted")
        if accepted is not None and not await self._recorded(origin.tenant_id, request_id, "failed"):
            said = {name: accepted.payload[name] for name in ("request_id", "execution_id", "events")}
            await self._tell(origin, "failed", {**said, "error": str(error)})

    async def _already(self, request: _Request) -> BatchTaken | None:
        """What is said of a delivery that is here; None for one that is not."""
        if not await self._is_here(request):
            return None
        await self._heal(request)
        if await self._recorded(request.origin.tenant_id, request.request_id, "accepted"):
            await self._record(request, "completed")  # a server was killed after the write and before this
        return await self._answer(request, "already there", 0)

    async def _charge(self, request: _Request) -> None:
        if self._quotas is not None:
            await self._quotas.take_events(request.origin.tenant_id, request.examined.events)

    async def progress(self, owner: Owner, request_id: str) -> BatchProgress:
        """How far a request of an organisation has come. Raises NotFound."""
        return _progress((await self._history(owner, request_id))[-1])

    async def follow(self, owner: Owner, request_id: str) -> AsyncIterator[BatchProgress]:
        """Every state of a request, those it has been in first, up to its end. Raises NotFound."""
        position, found = await self._embedded.ledger.position(), await self._history(owner, request_id)
        for event in found:
            yield _progress(event)
        if _progress(found[-1]).status in _ENDED:
            return
        seen = {event.event_id for event in found}
        async for item in self._embedded.ledger.subscribe(after_position=position):
            event = item.event
            if event.tenant_id != owner.tenant_id or event.aggregate_id != request_id or event.event_id in seen:
                continue
            yield _progress(event)
            if _progress(event).status in _ENDED:
                return

    async def _examined(self, parts: Sequence[Part], origin: Origin, wanted: Wanted) -> _Request:
        owner = await in_thread(owner_of, parts)
        restamper = _restamper(owner, origin, wanted.as_tenant)
        examined = await in_thread(examine, parts, self._embedded.registry, restamper)
        if wanted.events is not None and wanted.events != examined.events:
            raise InvalidInput(f"{wanted.events} events were announced, {examined.events} came", hint="send it again")
        execution_id = wanted.execution_id or examined.executions[0]
        if execution_id not in examined.executions:
            raise InvalidInput(f"there is no event of execution {execution_id} in this")
        return _Request(
            request_id=_request_id(Owner(origin.tenant_id, origin.organization_id), examined),
            origin=origin,
            execution_id=execution_id,
            parts=parts,
            examined=examined,
            taken_over=restamper is not None,
        )

    async def _check_missing(self, request: _Request) -> None:
        """What a delivery does not bring must be here already: no event may refer to nothing."""
        store = self._store(request)
        for event_id, ref in request.examined.missing:
            if not await store.exists(ref):
                raise InvalidInput(
                    f"event {event_id} refers to payload {ref.sha256}, which neither came nor is here",
                    hint="send the payloads along, as noetl push does",
                )

    async def _is_here(self, request: _Request) -> bool:
        return all([await self._ends_here(stream, head) for stream, head in request.examined.written.items()])

    async def _ends_here(self, stream: Stream, head: StreamHead) -> bool:
        """Whether this ledger has the stream up to this head, or further."""
        here = await self._embedded.ledger.head(stream)
        if here is None or not is_dense(stream.stream_id):
            return here is not None and (here.count, here.chain_hash) == (head.count, head.chain_hash)
        found = await self._embedded.ledger.read(stream, after_version=head.version - 1, to_version=head.version)
        return bool(found) and found[0].event.chain_hash == head.chain_hash

    async def _heal(self, request: _Request) -> None:
        store = self._store(request)
        for _, ref in request.examined.references.values():
            file = request.examined.payloads.get(ref.sha256)
            if file is None or await store.exists(ref):
                continue
            if ref.key is None:
                await _store(store, ref.sha256, file)
            else:
                await self._results(request).adopt(ref, partial(_chunks, file), replace=True)

    async def _write(self, request: _Request) -> int:
        store, examined = self._store(request), request.examined
        results = [ref for _, ref in examined.references.values() if ref.key is not None]
        alone = {ref.sha256 for ref in results} - {
            ref.sha256 for _, ref in examined.references.values() if ref.key is None
        }
        for sha256, file in examined.payloads.items():
            if sha256 not in alone:
                await _store(store, sha256, file)
        for ref in results:
            if ref.sha256 in examined.payloads:
                await self._keep_result(request, ref, examined.payloads[ref.sha256])
        try:
            async with self._held(request):
                adopted = await self._embedded.ledger.adopt(_events_of(request))
        except (IntegrityMismatch, Conflict) as error:
            # It was proven in itself, so what does not fit is what is here.
            raise Conflict(
                f"execution {request.execution_id} was not taken: {error.message}",
                hint="this server has another history; compare them with noetl export and noetl diff",
            ) from None
        return adopted.written

    @contextlib.asynccontextmanager
    async def _held(self, request: _Request) -> AsyncIterator[None]:
        """Nobody works on an execution while its history is being continued. Raises Unavailable if somebody does."""
        with contextlib.ExitStack() as holding:
            for execution_id in request.examined.executions:
                stream = Stream(request.origin.tenant_id, execution_stream(execution_id))
                if await self._embedded.ledger.head(stream) is None:
                    continue  # one that is new here cannot be at work here
                held = take(self._running, name_of(request.origin.tenant_id, execution_id))
                if held is None:
                    raise Unavailable(
                        f"execution {execution_id} is being worked on here", hint="push again when it has ended"
                    )
                holding.callback(held.release)
            yield

    async def _answer(self, request: _Request, status: str, written: int) -> BatchTaken:
        head = request.examined.written[request.stream]
        last = await self._embedded.ledger.read(
            request.stream, after_version=head.version - 1, to_version=head.version, limit=1
        )
        return self._taken(request, status, written, last[0].position)

    def _taken(self, request: _Request, status: str, written: int, position: int) -> BatchTaken:
        return BatchTaken(
            status=status,
            request_id=request.request_id,
            execution_id=str(request.execution_id),
            executions=tuple(map(str, request.examined.executions)),
            events=request.examined.events,
            written=written,
            position=position,
        )

    def _store(self, request: _Request) -> PayloadStore:
        return self._embedded.payloads.of_tenant(request.origin.tenant_id)

    def _results(self, request: _Request) -> ResultStore:
        return self._embedded.results.of_tenant(request.origin.tenant_id)

    async def _keep_result(self, request: _Request, ref: PayloadRef, file: Path) -> None:
        """Store a result where its reference says. Bytes of nobody are replaced, those of an execution are not."""
        results = self._results(request)
        if await results.adopt(ref, partial(_chunks, file)):
            return
        owner = execution_stream(ResultCoordinates.parse(ref.uri).execution_id)
        if await self._embedded.ledger.head(Stream(request.origin.tenant_id, owner)) is not None:
            raise Conflict(
                f"there is another result at '{ref.uri}' (object '{ref.key}')",
                hint="this server has another history; compare them with noetl export and noetl diff",
            )
        await results.adopt(ref, partial(_chunks, file), replace=True)

    async def _record(self, request: _Request, state: str, error: str | None = None) -> None:
        """Write down a state of the request, unless it is written down."""
        origin = request.origin
        if await self._recorded(origin.tenant_id, request.request_id, state):
            return
        payload: Json = {
            "request_id": request.request_id,
            "execution_id": str(request.execution_id),
            "events": request.examined.events,
        }
        if state == "accepted":
            payload["accepted"] = _end_of(request.execution_id, request.examined.written)
            if request.taken_over:
                payload["original"] = _end_of(request.execution_id, request.examined.heads)
        if error is not None:
            payload["error"] = error
        await self._tell(origin, state, payload)

    async def _tell(self, origin: Origin, state: str, payload: Json) -> None:
        draft = Draft(
            event_type=f"batch.{state}",
            tenant_id=origin.tenant_id,
            organization_id=origin.organization_id,
            project_id=origin.project_id,
            principal=origin.principal,
            producer=origin.producer,
            aggregate_type="batch",
            aggregate_id=payload["request_id"],
            status=state.upper(),
            payload=payload,
            idempotency_key=_key(payload["request_id"], state),
        )
        stream = Stream(origin.tenant_id, f"tenant/{origin.tenant_id}")
        await self._embedded.ledger.append([Batch(stream=stream, drafts=[draft])])

    async def _recorded(self, tenant_id: str, request_id: str, state: str) -> Envelope | None:
        found = await self._embedded.ledger.by_key(tenant_id, _key(request_id, state))
        return None if found is None else found.event

    async def _history(self, owner: Owner, request_id: str) -> list[Envelope]:
        """The states a request has been in; one that failed and was sent again may have been completed after all."""
        told = [await self._recorded(owner.tenant_id, request_id, state) for state in _STATES]
        found = [event for event in told if event is not None and event.organization_id == owner.organization_id]
        if not found:
            raise NotFound(f"there is no batch request {request_id}", hint="a request that was refused leaves none")
        return found


def _restamper(owner: Owner, origin: Origin, as_tenant: str | None) -> Restamper | None:
    """None for a delivery that belongs to the sender as it is. Organisations of one tenant are strangers, too."""
    own = Owner(origin.tenant_id, origin.organization_id)
    if as_tenant not in (None, origin.tenant_id):
        raise Forbidden(
            f"this token is of tenant '{origin.tenant_id}' and cannot take executions over for '{as_tenant}'",
            hint=f"--as names the tenant of the token: --as {origin.tenant_id}",
        )
    if owner == own:
        return None
    if as_tenant is None:
        raise Forbidden(
            f"the execution is of {owner}, this token is of {own}",
            hint=f"use a token of theirs, or take it over with --as {origin.tenant_id}",
        )
    return Restamper(origin.tenant_id, origin.organization_id)


def _events_of(request: _Request) -> Iterator[Envelope]:
    """The events as they will be written; read anew, because nothing held them in memory."""
    restamper = Restamper(request.origin.tenant_id, request.origin.organization_id) if request.taken_over else None
    for part in request.parts:
        for _, event in part.read():
            yield event if restamper is None else restamper.convert(event)


async def _store(store: PayloadStore, sha256: str, file: Path) -> None:
    kept = await store.store(_chunks(file), media_type="application/octet-stream")  # the events say what it is
    if kept.sha256 != sha256:
        raise IntegrityMismatch(f"payload {sha256} changed while it was being stored")


async def _chunks(file: Path) -> AsyncIterator[bytes]:
    with storage_errors(file), file.open("rb") as source:
        while chunk := await in_thread(source.read, PIECE_BYTES):
            yield chunk


def _request_id(to: Owner, examined: Examined) -> str:
    said = {"to": [*to], "from": [*examined.owner], "heads": _digest(examined.heads)}
    return hashlib.sha256(canonical.encode(said)).hexdigest()[:_ID_DIGITS]


def _digest(heads: Mapping[Stream, StreamHead]) -> str:
    """One digest for where all streams of a delivery end, however many they are."""
    ends = sorted((head.stream_id, head.version, head.count, head.chain_hash) for head in heads.values())
    return hashlib.sha256(canonical.encode(ends)).hexdigest()


def _end_of(execution_id: int, heads: Mapping[Stream, StreamHead]) -> Json:
    """Where an execution's own stream ends, and the digest of all the others beside it."""
    stream_id = execution_stream(execution_id)
    head = next(head for stream, head in heads.items() if stream.stream_id == stream_id)
    said: Json = {"stream_id": stream_id, "version": head.version, "chain_hash": head.chain_hash}
    return {"tenant_id": head.tenant_id, "head": said, "streams": len(heads), "digest": _digest(heads)}


def _key(request_id: str, state: str) -> str:
    return f"batch/{request_id}/{state}"


def _progress(event: Envelope) -> BatchProgress:
    said = event.payload
    return BatchProgress(
        request_id=said["request_id"],
        status=event.event_type.removeprefix("batch."),
        execution_id=said["execution_id"],
        events=said["events"],
        error=said.get("error"),
    )
