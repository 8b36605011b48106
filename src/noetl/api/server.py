"""The executions of a server, asked over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec

from noetl import __version__
from noetl.api.asking import Again, Job, Outcome, asked_from
from noetl.api.client import Client
from noetl.api.portal import Portal
from noetl.api.proving import envelope_of, prove
from noetl.api.run import Page
from noetl.api.sources import Reference, Source
from noetl.api.state import Proof, State
from noetl.api.summaries import Summary
from noetl.errors import InvalidInput, NotFound, Unavailable
from noetl.kernel.event import Envelope
from noetl.kernel.time import format_time
from noetl.kernel.vocabulary import TERMINAL_TYPES, canonical_type

if TYPE_CHECKING:
    from pathlib import Path

    from noetl.replay.evidence import Given
    from noetl.replay.service import Cutoff
    from noetl.runtime.logs import LogPage

__all__ = ["Server"]

T = TypeVar("T")

_LISTS = ("stages", "frames", "commands", "business_objects", "loops")
_EVENTS = 200
_PATIENCE = 8  # reconnections in a row without a single event
_PAUSE = 0.25
_LONGEST_PAUSE = 5.0


class Server:
    """A server at an address. Each call opens a connection of its own."""

    def __init__(self, url: str, token: str | None, seconds: float) -> None:
        self.url = url
        self._token = token
        self._seconds = seconds

    def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine for a caller that waits."""
        with Portal() as portal:
            return portal.call(work)

    async def check(self) -> None:
        """Raise unless a server of this release answers: Unavailable, Unauthenticated, InvalidInput."""
        async with self._client() as client:
            health = await client.get("/api/health")
        if not isinstance(health, dict) or "status" not in health:
            raise InvalidInput(f"{self.url} is not a NoETL server", hint="check the address")
        version = health.get("version")
        if isinstance(version, str) and not _speaks_like_us(version):
            raise InvalidInput(
                f"{self.url} is NoETL {version}, this is {__version__}; they do not understand each other",
                hint=f"install noetl {version.rpartition('.')[0]} here, or upgrade the server",
            )

    async def get(self, route: str, /, **params: Any) -> Any:
        """What a route answers, as it is."""
        async with self._client() as client:
            return await client.get(route, **params)

    async def post(self, route: str, body: Any = None) -> Any:
        """What a route answers to a request, as it is."""
        async with self._client() as client:
            return await client.post(route, body)

    async def delete(self, route: str) -> Any:
        """What a route answers when something is to be no more."""
        async with self._client() as client:
            return await client.delete(route)

    # --- Running ------------------------------------------------------------------------------------------

    async def start(self, job: Job) -> Summary:
        """Have an execution accepted. A document that is not in the catalog like this is registered first."""
        async with self._client() as client:
            wanted = job.what if isinstance(job.what, Reference) else await self._registered(client, job.what)
            key = job.key or f"client/{uuid.uuid4()}"
            body: dict[str, Any] = {"path": wanted.path, "payload": job.workload}
            if wanted.version is not None:
                body["version"] = wanted.version
            if job.parent_execution_id is not None:
                body["parent_execution_id"] = str(job.parent_execution_id)
            if job.pool is not None:
                body["execution_pool"] = job.pool
            headers = {"Idempotency-Key": key, **asked_from(os.environ)}
            answer = await client.post("/api/execute", body, headers=headers, repeatable=True)
        return Summary(execution_id=int(answer["execution_id"]), path=wanted.path, status=answer["status"])

    async def run(self, job: Job, deliver: Callable[[Envelope], None]) -> Outcome:
        """Have an execution accepted and follow it to its end; one that takes too long is cancelled."""
        accepted = await self.start(job)
        timed_out = not await self._follow_for(accepted.execution_id, deliver, job.timeout)
        if timed_out:
            await self.cancel(accepted.execution_id, f"took longer than {job.timeout:g} s", True)
        return Outcome(summary=await self.summary(accepted.execution_id), timed_out=timed_out)

    async def register(self, source: Source) -> list[dict[str, Any]]:
        """Put every document of a source into the catalog, each as the next version of its path."""
        texts = [one.text for one in source.beside] + [source.text]
        async with self._client() as client:
            answers = [await client.post("/api/catalog/register", {"content": text.lstrip("\n")}) for text in texts]
        return [{name: answer[name] for name in ("path", "version", "kind")} for answer in answers]

    async def register_text(self, text: str) -> list[dict[str, Any]]:
        """Put every document of a file into the catalog, or, if one has an error, none. Raises InvalidDocument."""
        async with self._client() as client:
            answer = await client.post("/api/catalog/register", {"content": text})
        return [{name: one[name] for name in ("path", "version", "kind", "sha256")} for one in answer["entries"]]

    # --- Asking -------------------------------------------------------------------------------------------

    async def executions(self, status: str | None, path: str | None, limit: int) -> list[Summary]:
        """Executions, newest first."""
        async with self._client() as client:
            answer = await client.get("/api/executions", status=status, path=path, page_size=limit)
        listed = answer["executions"] if isinstance(answer, dict) else answer
        return [_summary(one, None) for one in listed]

    async def listing(self, **filters: Any) -> dict[str, Any]:
        """A page of executions as the server gives it."""
        async with self._client() as client:
            answer = await client.get("/api/executions", **filters)
        return answer if isinstance(answer, dict) else {"executions": answer, "next_cursor": None}

    async def topology(self) -> dict[str, Any]:
        """Which workers there are, by place."""
        async with self._client() as client:
            answer: dict[str, Any] = await client.get("/api/topology")
        return answer

    async def summary(self, execution_id: int) -> Summary:
        """What has become of an execution."""
        async with self._client() as client:
            answer = await client.get(f"/api/executions/{execution_id}", page_size=1)
            found = _summary(answer, None)
            if not found.ended:
                return found
            state = await client.get("/api/replay/state", execution_id=execution_id)
            result = found.result
            if _is_elsewhere(result):
                result = (await client.get(f"/api/result/{execution_id}"))["value"]
            return msgspec.structs.replace(found, checksum=state["checksum"], result=result)

    async def wait(self, execution_id: int, seconds: float | None) -> Summary:
        """The same, once it has ended."""
        if not await self._follow_for(execution_id, lambda _: None, seconds):
            raise TimeoutError(f"execution {execution_id} has not ended after {seconds:g} s")
        return await self.summary(execution_id)

    async def result(self, execution_id: int, step: str) -> Any:
        """The whole result of a step that has ended."""
        return (await self.result_document(execution_id, step))["value"]

    async def result_document(self, execution_id: int, step: str | None) -> dict[str, Any]:
        """The result of a step, or of the execution, with its size and digest."""
        named = "" if step is None else f"/{quote(step, safe='')}"
        async with self._client() as client:
            answer: dict[str, Any] = await client.get(f"/api/result/{execution_id}{named}")
        return answer

    async def events(self, execution_id: int, after: int, limit: int, types: Collection[str]) -> Page:
        """Events of the execution's own stream after a version, and the version to go on from."""
        found: list[Envelope] = []
        async with self._client() as client:
            latest = await _latest(client, execution_id)
            async with contextlib.aclosing(self._stream(client, execution_id, after)) as stream:
                async for event in stream:
                    if not types or canonical_type(event.event_type) in types:
                        found.append(event)
                    if event.event_id >= latest:
                        return found, None
                    if event.stream_version >= after + limit:
                        return found, event.stream_version
        return found, None

    async def follow(self, execution_id: int, after: int = 0) -> AsyncGenerator[Envelope]:
        """Events as they are committed, up to the terminal one, over as many connections as it takes."""
        failures = 0
        while True:
            try:
                async with self._client() as client:
                    async for event in self._stream(client, execution_id, after):
                        failures, after = 0, event.stream_version
                        yield event
                        if canonical_type(event.event_type) in TERMINAL_TYPES:
                            return
            except Unavailable:
                if failures >= _PATIENCE:
                    raise
            if failures >= _PATIENCE:
                raise Unavailable(f"{self.url} ends the stream of execution {execution_id} again and again")
            failures += 1
            await asyncio.sleep(min(_LONGEST_PAUSE, _PAUSE * 2**failures))

    async def logs(self, execution_id: int, step: str | None, after: int) -> LogPage:
        """What tasks printed, from a place on."""
        from noetl.runtime.logs import LogPage

        async with self._client() as client:
            answer = await client.get(f"/api/executions/{execution_id}/logs", step=step, after=after)
        return msgspec.convert(answer, LogPage)

    async def replay(self, execution_id: int, cutoff: Cutoff) -> State:
        """The state as of a moment."""
        time = None if cutoff.time is None else format_time(cutoff.time)
        async with self._client() as client:
            document = await client.get(
                "/api/replay/state", execution_id=execution_id, as_of_event_id=cutoff.event_id,
                as_of_position=cutoff.position, as_of_time=time,
            )  # fmt: skip
        return _state(document, execution_id)

    async def verify(self, execution_id: int) -> Proof:
        """Prove here, from the events themselves, what the server says of them."""
        events: list[Envelope] = []
        after: int | None = 0
        while after is not None:
            page, after = await self.events(execution_id, after, 1000, ())
            events += page
        if not events:
            raise NotFound(f"there is no execution {execution_id} on {self.url}")
        from noetl.replay.service import Cutoff

        return prove(execution_id, events, await self.replay(execution_id, Cutoff(event_id=events[-1].event_id)))

    async def evidence(self, execution_id: int, directory: Path, sign: bool) -> Given:
        """Evidence is given where the log is, not over the network. Raises InvalidInput."""
        raise InvalidInput(
            f"evidence of execution {execution_id} is given where its log is, not over {self.url}",
            hint=f"with the settings of that server: noetl evidence {execution_id} --out DIR",
        )

    async def retry(self, execution_id: int, again: Again) -> Outcome:
        """Have a server go on from a step of an execution, and follow that to its end."""
        body = {"step": again.step, "payload": again.workload}
        headers = {"Idempotency-Key": again.key or f"client/{uuid.uuid4()}"}
        async with self._client() as client:
            answer = await client.post(f"/api/executions/{execution_id}/retry", body, headers=headers, repeatable=True)
        retried = int(answer["execution_id"])
        timed_out = not await self._follow_for(retried, lambda _: None, again.timeout)
        if timed_out:
            await self.cancel(retried, f"took longer than {again.timeout:g} s", True)
        return Outcome(summary=await self.summary(retried), timed_out=timed_out)

    async def cancel(self, execution_id: int, reason: str, cascade: bool) -> bool:
        """End an execution; False if it has ended already."""
        return bool((await self.cancel_document(execution_id, reason, cascade))["status"] == "cancelled")

    async def cancel_document(self, execution_id: int, reason: str, cascade: bool) -> dict[str, Any]:
        """What the server says of a cancellation. Raises NotFound."""
        async with self._client() as client:
            answer: dict[str, Any] = await client.post(
                f"/api/executions/{execution_id}/cancel", {"reason": reason, "cascade": cascade}, repeatable=True
            )
        return answer

    # --- Below --------------------------------------------------------------------------------------------

    def _client(self) -> Client:
        return Client(self.url, self._token, self._seconds)

    async def _follow_for(self, execution_id: int, deliver: Callable[[Envelope], None], seconds: float | None) -> bool:
        """Follow to the end; False if that takes too long."""
        waiting = asyncio.timeout(seconds)
        try:
            async with waiting:
                async for event in self.follow(execution_id):
                    deliver(event)
        except TimeoutError:
            if not waiting.expired():
                raise
            return False
        return True

    async def _stream(self, client: Client, execution_id: int, after: int) -> AsyncGenerator[Envelope]:
        """Events after a version, for as long as one connection lasts."""
        last_id = str(after) if after else ""
        async with contextlib.aclosing(client.stream(f"/api/executions/{execution_id}/stream", last_id)) as messages:
            async for message in messages:
                yield envelope_of(message.data)

    async def _registered(self, client: Client, source: Source) -> Reference:
        """The catalog's version of each document of a source; what it has just like this is not added again."""
        version = 0
        for path, text in [*((one.path, one.text) for one in source.beside), (source.path, source.text)]:
            content = text.lstrip("\n")
            try:
                latest = await client.post("/api/catalog/resource", {"path": path}, repeatable=True)
            except NotFound:
                latest = {}
            if latest.get("content") != content:
                latest = await client.post("/api/catalog/register", {"content": content})
            version = latest["version"]
        return Reference(path=source.path, version=str(version))


def _speaks_like_us(version: str) -> bool:
    """Releases that differ in the first two numbers may differ in everything."""
    return version.split(".")[:2] == __version__.split(".")[:2]


async def _latest(client: Client, execution_id: int) -> int:
    """The id of the last event in the execution's own stream: the one to read up to, since more may be coming.

    Events of other streams have no predecessor; where a whole page has none with one, the first event is the last.
    """
    first = await client.get(f"/api/executions/{execution_id}/events", page_size=1)
    page = first["pagination"]["total_events"] // _EVENTS + 1
    while page > 0:
        answer = await client.get(f"/api/executions/{execution_id}/events", page_size=_EVENTS, page=page)
        chained = [int(event["event_id"]) for event in answer["events"] if event["prev_event_id"] is not None]
        if chained:
            return chained[-1]
        page -= 1
    return int(first["events"][0]["event_id"])


def _summary(answer: Mapping[str, Any], checksum: str | None) -> Summary:
    error = answer.get("error")
    took = answer.get("duration_seconds")
    return Summary(
        execution_id=int(answer["execution_id"]),
        path=answer.get("path"),
        status=answer.get("status") or "PENDING",
        result=answer.get("result"),
        error=error if isinstance(error, dict) or error is None else {"message": str(error)},
        started_at=answer.get("start_time"),
        ended_at=answer.get("end_time"),
        duration_ms=None if took is None or not answer.get("end_time") else round(took * 1000),
        events=answer.get("event_count"),
        checksum=checksum,
        waiting_for=answer.get("waiting_for"),
    )


def _is_elsewhere(result: Any) -> bool:
    return isinstance(result, Mapping) and isinstance(result.get("_ref"), str)


def _state(document: Mapping[str, Any], execution_id: int) -> State:
    own = {"snapshot", "projection_checksums", "upcaster_registry_digest", "checksum", "position", "stream_id", *_LISTS}
    last = document.get("last_event_id")
    return State(
        execution_id=execution_id,
        status=document.get("status"),
        event_count=document.get("event_count") or 0,
        last_event_id=int(last) if last else None,
        position=int(document.get("position") or 0),
        surfaces={
            "execution": [{name: value for name, value in document.items() if name not in own}],
            **{name: document.get(name) or [] for name in _LISTS},
        },
        checksums=document["projection_checksums"],
        checksum=document["checksum"],
        snapshot=document["snapshot"],
    )
