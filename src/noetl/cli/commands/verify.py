"""noetl verify: proof, or the first thing that does not hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from noetl.cli.exits import MISMATCH, OK
from noetl.cli.options import common, find_root, home_of, run_async, settings_of
from noetl.cli.output import leaves, note, print_json, readable, with_text_ids
from noetl.errors import IntegrityMismatch, InvalidInput, NotFound

if TYPE_CHECKING:
    from noetl.kernel.fold import Difference
    from noetl.replay.verify import LedgerVerification, Verification
    from noetl.runtime.wiring import Embedded

__all__ = ["command"]

_MOST_PROBLEMS = 10
_WIDTH = 40


@click.command(epilog="Example: noetl verify --all")
@click.argument("execution", metavar="ID", required=False)
@click.option("--all", "all_", is_flag=True, help="Everything in the ledger, and the ledger itself.")
@click.option("--spark", is_flag=True, help="With --all: in parallel, from the lake; for millions of events.")
@common
def command(
    execution: str | None, all_: bool, spark: bool, home: Path | None, tenant: str | None, as_json: bool
) -> int | None:
    """Prove that the log is what was written, and that the live state is what the log says.

    Checks every event against its checksum, the hash chains, the seals, the stream heads under the
    wallet's key, and the stored projection rows against a replay. Exit code 4 names what does not hold.
    """
    if all_ == (execution is not None):
        raise InvalidInput("name an execution, or ask for --all", hint="noetl verify ID, or noetl verify --all")
    if spark and not all_:
        raise click.UsageError("--spark verifies everything: give --all too")
    if spark:
        from noetl.cli.bulk import verify_everything

        return run_async(verify_everything(home, tenant, as_json))
    return run_async(_verify(execution, home, tenant, as_json))


async def _verify(execution: str | None, home: Path | None, tenant: str | None, as_json: bool) -> int:
    from noetl.runtime.wiring import open_embedded

    settings = settings_of(tenant)
    async with open_embedded(home_of(home), settings, examine=True) as embedded:
        if execution is None:
            return await _verify_all(embedded, as_json)
        try:
            root = await find_root(embedded, execution, settings)
        except NotFound as error:
            await _refuse_if_torn(embedded, error)
            raise
        found = await embedded.verifier.verify(root)
    if as_json:
        print_json(_document(found))
    else:
        _show(found)
    return OK if found.ok else MISMATCH


async def _refuse_if_torn(embedded: Embedded, absent: NotFound) -> None:
    """Whether something was never there or was removed with all its traces, only the whole ledger can tell."""
    ledger = await embedded.verifier.verify_ledger()
    if ledger.problems:
        raise IntegrityMismatch(f"{absent.message}, and {ledger.problems[0].what}", hint="run noetl verify --all")


async def _verify_all(embedded: Embedded, as_json: bool) -> int:
    ledger = await embedded.verifier.verify_ledger()
    found = []
    async for root in embedded.verifier.roots():
        verification = await embedded.verifier.verify(root)
        if not as_json:
            _show(verification)
        found.append(verification)
    ok = not ledger.problems and all(item.ok for item in found)
    if as_json:
        print_json(
            {
                "ok": ok,
                "verified": len(found),
                "events": sum(item.events for item in found),
                "ledger": with_text_ids(msgspec.to_builtins(ledger)),
                "results": [_document(item) for item in found],
            }
        )
    else:
        _show_ledger(ledger, found)
    return OK if ok else MISMATCH


def _document(found: Verification) -> dict[str, Any]:
    document = {
        "stream_id": found.root.stream_id,
        "events": found.events,
        "ok": found.ok,
        "chain": "ok" if found.chain_ok else "broken",
        "keyed": found.keyed,
        "first_bad_event": None if found.first_bad_event is None else str(found.first_bad_event),
        "problems": msgspec.to_builtins(found.problems),
        "unsealed": found.unsealed,
        "live_bundle": found.live_bundle,
        "replayed_bundle": found.replayed_bundle,
        "parity": found.parity,
        "differences": msgspec.to_builtins(found.differences),
        "projected_to": found.projected_to,
        "archive": found.archive,
    }
    if found.root.stream_id.startswith("execution/"):
        document = {"execution_id": found.root.stream_id.split("/")[1], **document}
    return with_text_ids(document)  # type: ignore[no-any-return]  # a mapping stays a mapping


def _show(found: Verification) -> None:
    mark = click.style("ok", fg="green") if found.ok else click.style("MISMATCH", fg="red", bold=True)
    key = "keyed" if found.keyed else "unkeyed"
    where = "" if found.archive is None else ", archived"
    click.echo(f"{mark}  {found.root.stream_id}  {found.events} events, {key}{where}", nl=False)
    click.echo(f", {found.unsealed} not sealed yet" if found.unsealed and found.chain_ok else "")
    for problem in found.problems[:_MOST_PROBLEMS]:
        click.secho(f"    {readable(problem.what)}", fg="red")
    for difference in found.differences[:_MOST_PROBLEMS]:
        _show_difference(difference)
    more = len(found.problems) + len(found.differences) - _MOST_PROBLEMS
    if more > 0:
        click.echo(f"    and more: {more}, all with --json")
    if not found.keyed:
        note("    the wallet's key is not here: a well-made forgery would not be seen")


def _show_difference(difference: Difference) -> None:
    for field, live, replayed in leaves(difference.field, difference.live, difference.replayed):
        where = readable(f"{difference.surface} row {difference.row}, field '{field}'")
        sides = f"live {readable(live, _WIDTH)}, replayed {readable(replayed, _WIDTH)}"
        click.secho(f"    {where}: {sides}", fg="red")


def _show_ledger(ledger: LedgerVerification, found: list[Verification]) -> None:
    bad = sum(not item.ok for item in found)
    mark = click.style("ok", fg="green") if not ledger.problems else click.style("MISMATCH", fg="red", bold=True)
    gone = f", {ledger.archived_events} of them in archives of {ledger.archived} executions" if ledger.archived else ""
    click.echo(f"{mark}  ledger  {ledger.streams} streams, {ledger.position} events{gone}")
    for problem in ledger.problems[:_MOST_PROBLEMS]:
        click.secho(f"    {readable(problem.what)}", fg="red")
    click.echo(f"{len(found)} verified, {bad} with a mismatch")
