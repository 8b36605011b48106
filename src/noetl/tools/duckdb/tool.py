"""The duckdb kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from noetl.kernel.event import Json
from noetl.tools.base import Call, Outcome, Rendering, failed
from noetl.tools.duckdb.attached import attachments_of
from noetl.tools.sql import SQL_FIELDS, SQL_RENDERING, refuse_transaction_words, statements_of
from noetl.tools.values import BadField, Refused, truth

if TYPE_CHECKING:
    import duckdb

    from noetl.tools.duckdb.session import Job, Work

__all__ = ["DuckdbTool"]

MEMORY = ":memory:"
OF_THE_EXECUTION = "execution.duckdb"
_ASK_AGAIN = 0.05


class _Database:
    """A database that is open because somebody uses it, and its thread."""

    def __init__(self, name: str, extensions: Path | None) -> None:
        self.name = name
        self._extensions = extensions
        self.users = 0
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="duckdb")
        self._connection: duckdb.DuckDBPyConnection | None = None

    def run(self, job: Job) -> Outcome:
        from noetl.tools.duckdb.session import connect

        if self._connection is None:
            self._connection = connect(self.name, self._extensions)
        return job.run(self._connection)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class DuckdbTool:
    """Runs SQL in DuckDB.

    A database is open only while a call uses it, so that a step in another process can open the same file next.
    Calls that use one database at the same time take turns in its thread.
    """

    kind = "duckdb"
    rendering: Mapping[str, Rendering] = {**SQL_RENDERING, "input": "lazy"}
    required: tuple[tuple[str, ...], ...] = (SQL_FIELDS,)

    def __init__(self, *, extensions: Path | None = None) -> None:
        """`extensions` is where DuckDB looks for what was installed; by default in the user's home."""
        self._extensions = extensions
        self._open: dict[str, _Database] = {}

    def side_effecting(self, fields: Json) -> bool:
        """Always: a SELECT may read what another process writes, and COPY writes anywhere."""
        return True

    async def run(self, call: Call) -> Outcome:
        """Run the statements of the task."""
        try:
            work = await _work_of(call)
            name = await asyncio.to_thread(_database_of, call)
        except Refused as error:
            return error.outcome
        except OSError as error:
            return failed("connection", "DATABASE_UNAVAILABLE", f"the database cannot be opened: {error}")
        async with self._using(name) as database:
            return await _finish(database, work, call.timeout)

    async def close(self) -> None:
        """Nothing to let go of: a database is closed when its last call ends."""

    @asynccontextmanager
    async def _using(self, name: str) -> AsyncIterator[_Database]:
        shared = name != MEMORY
        database = self._open.get(name) if shared else None
        if database is None:
            database = _Database(name, self._extensions)
            if shared:
                self._open[name] = database
        database.users += 1
        try:
            yield database
        finally:
            database.users -= 1
            if not database.users:
                self._open.pop(name, None) if shared else None
                # In the thread, and after whatever is still running there.
                database.thread.submit(database.close)
                database.thread.shutdown(wait=False)


async def _finish(database: _Database, work: Work, limit: float | None) -> Outcome:
    """Wait for the job. A call that is given up waits until its thread has let go of the database."""
    import duckdb

    from noetl.tools.duckdb.session import Job

    job = Job(work)
    running = asyncio.get_running_loop().run_in_executor(database.thread, database.run, job)
    try:
        async with asyncio.timeout(limit):
            return await asyncio.shield(running)
    except TimeoutError:
        await _stopped(job, running)
        return failed("timeout", "TIMEOUT", f"the statements took longer than {limit:g} s")
    except asyncio.CancelledError:
        await _stopped(job, running)
        raise
    except duckdb.Error as error:
        return failed("connection", f"PY_{type(error).__name__}", f"the database cannot be opened: {error}")


async def _stopped(job: Job, running: asyncio.Future[Outcome]) -> None:
    while not running.done():
        # Between two statements there is nothing to interrupt, so it is said until it is heard.
        job.stop()
        await asyncio.wait([running], timeout=_ASK_AGAIN)
    if not running.cancelled():
        running.exception()


async def _work_of(call: Call) -> Work:
    from noetl.payloads.tables import TableValue
    from noetl.tools.duckdb.session import Work

    fields = call.fields
    work = Work(
        statements=await statements_of(call),
        attachments=attachments_of(call.auth, fields.get("gcs_credential")),
        autocommit=truth(fields, "autocommit", default=False),
        directory=call.directory,
        tables={name: value.arrow for name, value in call.input.items() if isinstance(value, TableValue)},
    )
    if not work.autocommit:
        refuse_transaction_words(work.statements)
    return work


def _database_of(call: Call) -> str:
    """`:memory:`, or the one path of a file, so that two spellings do not open it twice."""
    given = call.fields.get("database")
    if given is not None and not isinstance(given, str):
        raise BadField("database must be :memory: or a file")
    if given == MEMORY:
        return MEMORY
    path = call.directory / given if given else call.scratch / OF_THE_EXECUTION
    if not given:
        path.parent.mkdir(parents=True, exist_ok=True)
    return str(Path(path).resolve())
