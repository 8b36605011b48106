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

from noetl.api.summaries import summary_of, worker_slots
from noetl.cli.archived import archived
from noetl.cli.buffers import buffered
from noetl.cli.contexts import RUNTIMES
from noetl.cli.exits import FAILED, OK
from noetl.cli.options import common, home_of, run_async, settings_of
from noetl.cli.output import note, print_json
from noetl.cli.remote import context_option, run_on, target_of_run
from noetl.cli.sources import Source, in_catalog, in_file, register_beside, unknown
from noetl.errors import InvalidInput, Unavailable

if TYPE_CHECKING:
    from noetl.api.asking import Job
    from noetl.cli.progress import Progress
    from noetl.runtime.embedded.runner import Runner
    from noetl.runtime.wiring import Embedded
    from noetl.settings import Settings

__all__ = ["command", "execute", "given_workload", "only_one_with"]

_MOST_RECALLED = 50_000
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
@click.option("--offline", is_flag=True, help="Leave the run as files below local/ in the home, for noetl push.")
@click.option("-v", "--verbose", is_flag=True, help="Print every event as a line.")
@click.option(
    "-r", "--runtime", type=click.Choice(RUNTIMES), default="auto", show_default=True,
    help="Where it runs: here, on a server, or as the context says.",
)  # fmt: skip
@click.option("--pool", metavar="NAME", help="On a server: whose workers run it, and what it calls.")
@click.option("--wait", is_flag=True, help="Follow an execution on a server to its end.")
@context_option
@common
def command(
    ref: str,
    assignments: tuple[str, ...],
    payload: str | None,
    key: str | None,
    entry: str | None,
    version: str | None,
    dry_run: bool,
    offline: bool,
    verbose: bool,
    runtime: str,
    pool: str | None,
    wait: bool,
    context: str | None,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> int | None:
    """Run a playbook from a file, or by its catalog path: here, to its end, or on a server, which accepts it.

    Every step is durable: a run that is killed goes on with `noetl resume ID`, or with the same command
    and the same --key, after the last step that was completed. Of a file with several documents the last
    playbook runs; the others are registered first, so that it can call them.
    """
    workload = given_workload(assignments, payload)
    source = in_file(ref)
    if source is not None and dry_run:
        return _checked(source, entry, as_json)
    wanted = _Wanted(ref=ref, version=version, source=source, workload=workload, key=key, entry=entry,
                     offline=offline, verbose=verbose, pool=pool)  # fmt: skip
    target = target_of_run(runtime, context, home, is_file=source is not None)
    if target is not None:
        return run_on(target, _job(wanted, dry_run), wait=wait, verbose=verbose, as_json=as_json)
    if pool is not None:
        raise InvalidInput("--pool is for runs on a server, and this one runs here", hint="add --runtime server")
    return run_async(_run(wanted, dry_run, home, tenant, as_json))


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What this call is to run."""

    ref: str
    version: str | None
    source: Source | None
    workload: dict[str, Any]
    key: str | None
    entry: str | None
    offline: bool = False
    verbose: bool = False
    pool: str | None = None


def _job(wanted: _Wanted, dry_run: bool) -> Job:
    """What a server is asked to run. Raises InvalidInput for what only a local run can do."""
    from noetl.api.asking import Job
    from noetl.api.sources import reference_of

    for given, flag in ((wanted.entry, "-t"), (wanted.offline, "--offline"), (dry_run, "--dry-run")):
        if given:
            raise InvalidInput(f"{flag} is for local runs, and this one runs on a server", hint="add --runtime local")
    what = wanted.source or reference_of(wanted.ref, wanted.version)
    return Job(what=what, workload=wanted.workload, key=wanted.key, pool=wanted.pool)


async def _run(wanted: _Wanted, dry_run: bool, home: Path | None, tenant: str | None, as_json: bool) -> int:
    import os

    from noetl.api.asking import asked_from
    from noetl.runtime.driver import Request
    from noetl.runtime.wiring import open_embedded

    settings, place = settings_of(tenant), home_of(home)
    if wanted.source is None and not place.has_ledger():
        raise unknown(wanted.ref)
    async with open_embedded(place, settings, create=wanted.source is not None) as embedded:
        source = wanted.source or await in_catalog(embedded, settings.tenant.id, wanted.ref, wanted.version)
        if dry_run:
            return _checked(source, wanted.entry, as_json)
        await register_beside(embedded, settings.tenant.id, source)
        request = Request(
            document=source.text, file=source.file, origin=source.origin, workload=wanted.workload, key=wanted.key,
            entry=wanted.entry, trace=asked_from(os.environ),
        )  # fmt: skip
        async with only_one_with(wanted.key, embedded, settings, place.path):
            return await execute(
                embedded, settings, place.path, lambda runner: runner.start(request), as_json, offline=wanted.offline,
                verbose=wanted.verbose,
            )  # fmt: skip


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
    embedded: Embedded,
    settings: Settings,
    home: Path,
    begin: Callable[[Runner], Awaitable[int]],
    as_json: bool,
    *,
    offline: bool = False,
    verbose: bool = False,
) -> int:
    """Run what `begin` names to its end, showing it on the way; returns the exit code."""
    from noetl.cli.faults import fault_of
    from noetl.cli.progress import Progress
    from noetl.cli.warned import warnings_shown
    from noetl.runtime.embedded.runner import open_runner
    from noetl.runtime.logs import kept_logs
    from noetl.runtime.notices import all_of
    from noetl.runtime.origin import origin_of

    progress = Progress(quiet=as_json, verbose=verbose)
    async with (
        kept_logs(home, embedded.clock, note) as keep,
        open_runner(
            embedded,
            origin_of(settings),
            directory=Path.cwd(),
            scratch=home / "scratch",
            slots=worker_slots(settings),
            on_events=progress.notice,
            on_notice=all_of(keep, progress.hear),
        ) as runner,
        warnings_shown(runner.tooling.vault.guard, home),
    ):
        execution_id = await begin(runner)
        await _recall(progress, embedded, settings, execution_id)
        async with alone(embedded, settings, home, str(execution_id)), progress.shown():
            _cancel_on_interrupt(runner, execution_id)
            await runner.resume(execution_id)
            try:
                finished = await runner.wait(execution_id)
            except Unavailable:
                note(f"what is done is kept: noetl resume {execution_id} goes on when the cause is mended")
                raise
            if finished.status == "CANCELLED":
                await runner.settle(_GRACE)
        fault = await fault_of(embedded, runner.driver, execution_id)
    document = (await summary_of(embedded, finished)).document()
    if offline:
        document["buffer"] = await buffered(embedded, settings, home, finished)
    if settings.archive.on_completion:
        document["archive"] = await archived(embedded, settings, finished)
    if as_json:
        print_json(document)
    else:
        progress.conclude(document, finished, fault)
        if offline:
            note(f"kept in {document['buffer']}; noetl push {execution_id} delivers it to a server")
    return OK if finished.status == "COMPLETED" else FAILED


async def _recall(progress: Progress, embedded: Embedded, settings: Settings, execution_id: int) -> None:
    """Let whoever looks at a run that goes on know how far it had come."""
    from noetl.kernel.streams import execution_stream
    from noetl.kernel.tail import Stream

    if not progress.knows_nothing:
        return
    root, position, seen = Stream(settings.tenant.id, execution_stream(execution_id)), 0, 0
    while seen < _MOST_RECALLED and (page := await embedded.ledger.read_root(root, after_position=position)):
        progress.recall([item.event for item in page])
        position, seen = page[-1].position, seen + len(page)


def alone(
    embedded: Embedded, settings: Settings, home: Path, name: str
) -> contextlib.AbstractAsyncContextManager[None]:
    """Keep other processes from working on the same thing at the same time."""
    from noetl.runtime.embedded.alone import alone_with
    from noetl.runtime.origin import origin_of

    return alone_with(
        embedded, origin_of(settings), home, name, lambda: note("another process is running this; waiting for it")
    )


def only_one_with(
    key: str | None, embedded: Embedded, settings: Settings, home: Path
) -> contextlib.AbstractAsyncContextManager[None]:
    """Of two calls with one key the second waits, and finds it done."""
    if key is None:
        return contextlib.nullcontext()
    name = hashlib.sha256(f"{settings.tenant.id}\0{key}".encode()).hexdigest()
    return alone(embedded, settings, home, f"key-{name}")


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


def given_workload(assignments: tuple[str, ...], payload: str | None) -> dict[str, Any]:
    """The workload values that `--set` and `--payload` give."""
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
