"""noetl retry: go on from an earlier execution, in a new one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from noetl.cli.commands.run import execute, given_workload, only_one_with
from noetl.cli.options import common, execution_id_of, home_of, run_async, settings_of
from noetl.cli.output import note, readable
from noetl.cli.sources import Source, in_catalog, in_file, register_beside
from noetl.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from noetl.engine.fork import Fork
    from noetl.runtime.embedded.runner import Runner
    from noetl.runtime.fork import Repaired, Retry
    from noetl.runtime.wiring import Embedded

__all__ = ["command"]


@click.command(epilog="Example: noetl retry 318485246779594112 --from load --set limit=10")
@click.argument("execution", metavar="ID")
@click.option("--from", "step", metavar="STEP", help="Begin at this step; by default the one that failed.")
@click.option(
    "--set", "assignments", multiple=True, metavar="K=V", help="A workload value in place of the earlier one."
)
@click.option("--key", metavar="KEY", help="Idempotency key: the same key continues the same retry.")
@click.option("--file", "file", metavar="FILE", help="Go on with the repaired playbook of this file.")
@click.option("--latest", is_flag=True, help="Go on with the latest version in the catalog.")
@click.option("--force", is_flag=True, help="Also if the execution is still running; it is left alone.")
@click.option("-v", "--verbose", is_flag=True, help="Print every event as a line.")
@common
def command(
    execution: str,
    step: str | None,
    assignments: tuple[str, ...],
    key: str | None,
    file: str | None,
    latest: bool,
    force: bool,
    verbose: bool,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> int | None:
    """Start a new execution that adopts the results of an earlier one and begins at a step.

    The steps that had ended before STEP was last entered are not run again: their results, and ctx as it
    was then, are taken over. STEP and whatever follows it are run, with the same playbook and the same
    workload unless you say otherwise. Their side effects happen again: they belong to the new execution,
    and so do its idempotency keys.
    """
    if file is not None and latest:
        raise InvalidInput("--file and --latest are two playbooks", hint="choose one of them")
    wanted = _Wanted(
        execution_id=execution_id_of(execution), step=step, workload=given_workload(assignments, None), key=key,
        source=None if file is None else _source_in(file), latest=latest, force=force, verbose=verbose,
    )  # fmt: skip
    return run_async(_retry(wanted, home, tenant, as_json))


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What this call is to try again."""

    execution_id: int
    step: str | None
    workload: dict[str, Any]
    key: str | None
    source: Source | None
    latest: bool
    force: bool
    verbose: bool


async def _retry(wanted: _Wanted, home: Path | None, tenant: str | None, as_json: bool) -> int:
    from noetl.runtime.fork import Forks
    from noetl.runtime.wiring import open_embedded

    settings, place = settings_of(tenant), home_of(home)
    async with open_embedded(place, settings) as embedded:

        async def begin(runner: Runner) -> int:
            forks = Forks(embedded.ledger, embedded.payloads, runner.driver, settings.tenant.id)
            request = await forks.plan(await _asked(wanted, embedded, runner, settings.tenant.id))
            if wanted.source is not None:
                await register_beside(embedded, settings.tenant.id, wanted.source)
            assert request.fork is not None
            _announce(request.fork, quiet=as_json)
            return await runner.start(request)

        async with only_one_with(wanted.key, embedded, settings, place.path):
            return await execute(embedded, settings, place.path, begin, as_json, verbose=wanted.verbose)


async def _asked(wanted: _Wanted, embedded: Embedded, runner: Runner, tenant_id: str) -> Retry:
    from noetl.runtime.fork import Retry

    source = wanted.source
    if wanted.latest:
        path = (await runner.driver.execution(wanted.execution_id)).playbook.path
        source = await in_catalog(embedded, tenant_id, path, None)
    return Retry(
        execution_id=wanted.execution_id,
        step=wanted.step,
        workload=wanted.workload,
        key=wanted.key,
        repaired=None if source is None else _repaired(source),
        force=wanted.force,
    )


def _source_in(file: str) -> Source:
    source = in_file(file)
    if source is None:
        raise NotFound(f"there is no file {file}", hint="--latest goes on with what is in the catalog")
    return source


def _repaired(source: Source) -> Repaired:
    from noetl.playbook.parse import load
    from noetl.runtime.fork import Repaired
    from noetl.tools.registry import Registry

    playbook = load(source.text, source.file, kinds=Registry().user_kinds())
    return Repaired(text=source.text, file=source.file, origin=source.origin, playbook=playbook)


def _announce(fork: Fork, *, quiet: bool) -> None:
    for warning in fork.warnings:
        note(f"warning: {readable(warning)}")
    if not quiet:
        count = f"{len(fork.steps)} step{'' if len(fork.steps) == 1 else 's'}"
        step = readable(fork.step)
        note(f"  ↷ {count} of {fork.execution_id} adopted; '{step}' and what follows it run, with their side effects")
