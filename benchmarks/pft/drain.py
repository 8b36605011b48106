"""Claim, fetch, save: what one process of a reference does until the queue is empty.

Written as somebody would who needs it once and wants it fast: one event loop, connections kept open to both sides,
prepared statements, frames of rows claimed at once and their rows run side by side, a retry where the API pushes back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields
from typing import Any

import aiohttp
import msgspec
import psycopg

from benchmarks.pft.answers import DETAILS_PATH, PATIENT
from benchmarks.pft.tables import CLAIM, FRAME_ROWS, SAVE_DEMOGRAPHICS, SAVE_DETAILS, SAVE_PAGES
from benchmarks.pft.totals import DEMOGRAPHICS, DETAILS

__all__ = ["Drained", "Drainer", "Plan", "opened"]

_ATTEMPTS = 200
_PUSHED_BACK = 429
_BROKEN = 500

Connection = psycopg.AsyncConnection[tuple[Any, ...]]
Parameters = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """Where the work is, and how much of it a process does at once."""

    api: str
    dsn: str
    slots: int = 2
    """Frames in flight in a process, of each kind."""
    requests: int = 32
    """Rows in work in a process at once; each asks for one page after the other."""
    connections: int = 12
    """To Postgres."""


@dataclass
class Drained:
    """What was done, and how the time of the rows was spent."""

    rows: int = 0
    frames: int = 0
    requests: int = 0
    refused: int = 0
    http_seconds: float = 0.0
    sql_seconds: float = 0.0
    row_seconds: float = 0.0

    def __add__(self, other: Drained) -> Drained:
        return Drained(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


class Drainer:
    """The connections of one process."""

    def __init__(self, plan: Plan, http: aiohttp.ClientSession, connections: list[Connection]) -> None:
        self._plan = plan
        self._http = http
        self._idle: asyncio.LifoQueue[Connection] = asyncio.LifoQueue()
        for connection in connections:
            self._idle.put_nowait(connection)
        self._turns = asyncio.Semaphore(plan.requests)
        self._done = Drained()

    async def drain(self, run: str, facility: int, kinds: list[str]) -> Drained:
        """Work until there is no pending row of these kinds left to claim."""
        self._done = Drained()
        scopes = [{"run": run, "facility": facility, "kind": kind} for kind in kinds]
        await asyncio.gather(*(self._slot(scope) for scope in scopes for _ in range(self._plan.slots)))
        return self._done

    async def _slot(self, scope: Parameters) -> None:
        kind = scope["kind"]
        work = self._details if kind == DETAILS else self._demographics if kind == DEMOGRAPHICS else self._pages
        while rows := await self._sql(CLAIM, {**scope, "rows": FRAME_ROWS}):
            self._done.frames += 1
            await asyncio.gather(
                *(self._row(work, {**scope, "id": name, "patient": patient}) for _, name, patient in rows)
            )

    async def _row(self, work: Callable[[Parameters], Awaitable[None]], row: Parameters) -> None:
        async with self._turns:
            begun = time.perf_counter()
            await work(row)
            self._done.rows += 1
            self._done.row_seconds += time.perf_counter() - begun

    async def _pages(self, row: Parameters) -> None:
        answers: list[Any] = []
        more = True
        while more:
            page = len(answers) + 1
            query = f"{PATIENT}{row['kind']}?patientId={row['patient']}&page={page}&pageSize=1"
            body = await self._get(query, row, str(page))
            answer = msgspec.json.decode(body)
            answers.append(answer)
            more = answer["paging"]["hasMore"]
        await self._save(SAVE_PAGES, {**row, "answers": msgspec.json.encode(answers).decode()})

    async def _demographics(self, row: Parameters) -> None:
        body = await self._get(f"{PATIENT}{DEMOGRAPHICS}?patientId={row['patient']}", row)
        await self._save(SAVE_DEMOGRAPHICS, {**row, "answer": body.decode()})

    async def _details(self, row: Parameters) -> None:
        body = await self._get(f"{DETAILS_PATH}?assessmentId={row['id']}", row)
        await self._save(SAVE_DETAILS, {**row, "answer": body.decode()})

    async def _get(self, target: str, row: Parameters, page: str = "1") -> bytes:
        """The body of an answer, however often the API has to be asked. Raises what it says if it refuses."""
        begun = time.perf_counter()
        headers = {"Idempotency-Key": f"{row['run']}/{row['kind']}/{row['id']}/{page}"}
        attempt = 0
        while True:
            attempt += 1
            async with self._http.get(f"{self._plan.api}{target}", headers=headers) as response:
                body = await response.read()
            self._done.requests += 1
            if response.status == 200:
                self._done.http_seconds += time.perf_counter() - begun
                return body
            if attempt == _ATTEMPTS or (response.status != _PUSHED_BACK and response.status < _BROKEN):
                raise RuntimeError(f"{target}: {response.status} {body.decode()}")
            self._done.refused += 1
            await asyncio.sleep(float(response.headers.get("Retry-After", "1")))

    async def _save(self, statement: str, parameters: Parameters) -> None:
        begun = time.perf_counter()
        await self._sql(statement, parameters)
        self._done.sql_seconds += time.perf_counter() - begun

    async def _sql(self, statement: str, parameters: Parameters) -> list[tuple[Any, ...]]:
        connection = await self._idle.get()
        try:
            cursor = await connection.execute(statement.encode(), parameters)
            return await cursor.fetchall() if cursor.description else []
        finally:
            self._idle.put_nowait(connection)


@asynccontextmanager
async def opened(plan: Plan) -> AsyncIterator[Drainer]:
    """A drainer with its connections open, the statements prepared at their first use."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=plan.requests),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=30),
            )
        )
        connections = [
            await stack.enter_async_context(
                await psycopg.AsyncConnection.connect(plan.dsn, autocommit=True, prepare_threshold=0)
            )
            for _ in range(plan.connections)
        ]
        yield Drainer(plan, http, connections)
