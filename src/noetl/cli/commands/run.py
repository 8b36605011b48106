"""noetl run: run a playbook here and now."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from noetl.cli.exits import FAILED, OK
from noetl.cli.options import common, home_of, run_async, settings_of
from noetl.cli.output import note, print_json
from noetl.cli.sources import Source, in_catalog, in_file, register_beside, unknown
from noetl.errors import InvalidInput

if TYPE_CHECKING:
    from noetl.runtime.embedded.runner import Finished, Runner
    from noetl.runtime.wiring import Embedded
    from noetl.settings import Settings

__all__ = ["command", "execute", "origin_of", "summary_of", "worker_slots"]

_GRACE = 10.0  # seconds that running tools have once their execution was cancelled


@click.command(epilog="Example: noetl run orders.yaml --set day=2026-03-01 --set limit=10")
@click.argument("ref", metavar="FILE|PATH")
@click.option(
    "--set", "assignments", multiple=True, metavar="K=V", help="A workload value; JSON if it parses, else text."
)
@click.option("--payload", metavar="JSON|@FILE", help="Workload values as one JSON object.")
@click.option("--key", metavar="KEY", help="Idempotency key: the same key continues the same execution.")
@click.option("-t", "--step", "entry", metavar="STEP", help="Begin at this step.")
@click.option("-V", "--version", metavar="N", help="The version of a catalog path; the latest by default.")
@click.option("--dry-run", is_flag=True, help="Check the document and the payload, run nothing.")
@common
def command(
    ref: str,
    assignments: tuple[str, ...],
    payload: str | None,
    key: str | None,
    entry: str | None,
    version: str | None,
    dry_run: bool,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> int | None:
    """Run a playbook from a file, or by its catalog path, and wait for its end.

    Every step is durable: a run that is killed goes on with `noetl resume ID`, or with the same command
    and the same --key, after the last step that was completed. Of a file with several documents the last
    playbook runs; the others are registered first, so that it can call them.
    """
    workload = _workload(assignments, payload)
    source = in_file(ref)
    if source is not None and dry_run:
        return _checked(source, entry, as_json)
    wanted = _Wanted(ref=ref, version=version, source=source, workload=workload, key=key, entry=entry)
    return run_async(_run(wanted, dry_run, home, tenant, as_json))


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What this call is to run."""

    ref: str
    version: str | None
    source: Source | None
    workload: dict[str, Any]
    key: str | None
    entry: str | None


async def _run(wanted: _Wanted, dry_run: bool, home: Path | None, tenant: str | None, as_json: bool) -> int:
    from noetl.runtime.driver import Request
    from noetl.runtime.wiring import open_embedded

    settings, place = settings_of(tenant), home_of(home)
    if wanted.source is None and not place.has_ledger():
        raise unknown(wanted.ref)
    async with open_embedded(place, settings, create=wanted.source is not None, commits="loop") as embedded:
        source = wanted.source or await in_catalog(embedded, settings.tenant.id, wanted.ref, wanted.version)
        if dry_run:
            return _checked(source, wanted.entry, as_json)
        await register_beside(embedded, settings.tenant.id, source)
        request = Request(
            document=source.text, file=source.file, origin=source.origin, workload=wanted.workload, key=wanted.key,
            entry=wanted.entry,
        )  # fmt: skip
        async with contextlib.AsyncExitStack() as held:
            if wanted.key is not None:  # two calls with one key: the second waits, and finds it done
                name = hashlib.sha256(f"{settings.tenant.id}\0{wanted.key}".encode()).hexdigest()
                await held.enter_async_context(alone(embedded, place.path, f"key-{name}"))
            return await execute(embedded, settings, place.path, lambda runner: runner.start(request), as_json)


def _checked(source: Source, entry: str | None, as_json: bool) -> int:
    """The end of a dry run: the document is valid, or we would not be here."""
    from noetl.playbook.parse import load
    from noetl.tools.registry import Registry

    playbook = load(source.text, source.file, kinds=Registry().user_kinds())
    if entry is not None and entry not in playbook.steps:
        raise InvalidInput(f"there is no step '{entry}' in {playbook.path}", hint=f"steps: {', '.join(playbook.steps)}")
    if as_json:
        print_json({"file": source.file, "path": playbook.path, "ok": True, "entry": entry or playbook.entry})
    else:
        note(f"{source.file} is valid")
    return OK


async def execute(
    embedded: Embedded, settings: Settings, home: Path, begin: Callable[[Runner], Awaitable[int]], as_json: bool
) -> int:
    """Run what `begin` names to its end, showing it on the way; returns the exit code."""
    from noetl.cli.faults import fault_of
    from noetl.cli.progress import Progress
    from noetl.runtime.embedded.runner import open_runner

    progress = Progress(quiet=as_json)
    async with open_runner(
        embedded,
        origin_of(settings),
        directory=Path.cwd(),
        scratch=home / "scratch",
        slots=worker_slots(),
        on_events=progress.notice,
    ) as runner:
        execution_id = await begin(runner)
        async with alone(embedded, home, str(execution_id)):
            _cancel_on_interrupt(runner, execution_id)
            await runner.resume(execution_id)
            finished = await runner.wait(execution_id)
            if finished.status == "CANCELLED":
                await runner.settle(_GRACE)
        fault = await fault_of(runner.driver, execution_id)
    document = await summary_of(embedded, finished)
    if as_json:
        print_json(document)
    else:
        progress.conclude(document, finished, fault)
    return OK if finished.status == "COMPLETED" else FAILED


def alone(embedded: Embedded, home: Path, name: str) -> contextlib.AbstractAsyncContextManager[None]:
    """Keep other processes from working on the same thing at the same time."""
    from noetl.runtime.embedded.hold import hold

    return hold(home / "running", name, embedded.clock, lambda: note("another process is running this; waiting for it"))


def origin_of(settings: Settings) -> Any:
    """On whose behalf this process writes."""
    from noetl.kernel.names import InfrastructureName
    from noetl.runtime.driver import Origin

    place, tenant = settings.place, settings.tenant
    producer = InfrastructureName(
        tenant=tenant.id, org=tenant.organization, region=place.region, zone=place.zone, cluster=place.cluster,
        node=place.node,
    )  # fmt: skip
    return Origin(
        tenant_id=tenant.id,
        organization_id=tenant.organization,
        project_id=tenant.project,
        principal=f"user:{os.environ.get('USER') or os.environ.get('LOGNAME') or 'local'}",
        producer=str(producer),
        home={"env": place.env, "region": place.region, "cell": place.cell},
    )


def worker_slots() -> int:
    """How many commands run at once."""
    return max(4, 2 * (os.cpu_count() or 1))


async def summary_of(embedded: Embedded, finished: Finished) -> dict[str, Any]:
    """An execution in the shape that scripts rely on."""
    from noetl.kernel.streams import execution_stream
    from noetl.kernel.tail import Stream
    from noetl.kernel.time import parse_time

    await embedded.projector.catch_up()
    page = await embedded.projections.query("execution", where={"execution_id": finished.execution_id}, limit=1)
    row = msgspec.json.decode(page.rows[0].row) if page.rows else {}
    root = page.rows[0].root if page.rows else Stream("default", execution_stream(finished.execution_id))
    replayed = await embedded.replayer.replay(root)
    begun, ended = row.get("started_at"), row.get("ended_at")
    return {
        "execution_id": str(finished.execution_id),
        "path": row.get("path"),
        "status": finished.status,
        "result": finished.result,
        "error": finished.error,
        "started_at": begun,
        "ended_at": ended,
        "duration_ms": (parse_time(ended) - parse_time(begun)) // 1000 if begun and ended else None,
        "events": row.get("event_count"),
        "checksum": replayed.checksum(),
    }


def _cancel_on_interrupt(runner: Runner, execution_id: int) -> None:
    """The first interrupt cancels the execution, a second one ends this process."""
    loop = asyncio.get_running_loop()
    interrupts: list[asyncio.Task[bool]] = []

    def interrupted() -> None:
        if interrupts:
            os._exit(130)
        note("cancelling; what is running may finish; once more to stop at once")
        interrupts.append(loop.create_task(runner.cancel(execution_id, "interrupted")))

    loop.add_signal_handler(signal.SIGINT, interrupted)


def _workload(assignments: tuple[str, ...], payload: str | None) -> dict[str, Any]:
    workload: dict[str, Any] = {}
    if payload is not None:
        text = _payload_text(payload)
        try:
            workload = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise InvalidInput(f"--payload is not a JSON object: {error}") from None
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise InvalidInput(f"--set {assignment}: there is no '='", hint="write --set name=value")
        workload[name] = _json_or_text(value)
    return workload


def _payload_text(payload: str) -> str:
    if not payload.startswith("@"):
        return payload
    try:
        return Path(payload[1:]).read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot read {payload[1:]}: {error.strerror}") from None


def _json_or_text(value: str) -> Any:
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value
