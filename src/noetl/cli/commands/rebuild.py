"""noetl rebuild: all rows anew, compared with those in use, and put in their place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from noetl.cli.exits import MISMATCH, OK
from noetl.cli.options import common, home_of, run_async, settings_of
from noetl.cli.output import note, print_json, readable

if TYPE_CHECKING:
    from noetl.ports.shadows import Drift
    from noetl.runtime.home import Home
    from noetl.settings import Settings

__all__ = ["command"]


@click.command("rebuild", epilog="Example: noetl rebuild --compare, and when you agree: noetl rebuild --accept")
@click.option("--compare", "--check", "compare", is_flag=True, help="Only compare; exits 4 if a row is wrong.")
@click.option("--accept", is_flag=True, help="Replace rows that are wrong, too.")
@click.option(
    "--from-archive",
    "archives",
    metavar="URI|all",
    help="Read archived executions from their bundles, those whose address begins with URI, also if they are here.",
)
@common
def command(
    compare: bool,
    accept: bool,
    archives: str | None,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> int | None:
    """Fold the log into rows beside those in use, compare them, and put them in their place, all at once.

    Executions that have left the ledger are read from their archives. Rows that were late are replaced. If rows are
    wrong, nothing is replaced, they are named, and it exits 4; with --accept they are replaced. Everybody may go on
    meanwhile, and if it is killed the rows in use stay as they are.
    """
    if compare and accept:
        raise click.UsageError("--compare replaces nothing, --accept does: use one of them")
    return run_async(_rebuild(home_of(home), settings_of(tenant), compare, accept, archives, as_json))


async def _rebuild(
    home: Home, settings: Settings, compare: bool, accept: bool, archives: str | None, as_json: bool
) -> int:
    from noetl.runtime.rebuild import rebuild_rows

    def decide(drift: Drift) -> bool:
        return not compare and (accept or not drift.wrong)

    found = await rebuild_rows(home, settings, decide=decide, archives=archives)
    if as_json:
        first = [dict(zip(one.__struct_fields__, msgspec.structs.astuple(one), strict=True)) for one in found.first]
        numbers = {"rows": found.rows, "late_roots": found.late, "wrong_rows": found.wrong}
        print_json({**numbers, "replaced": found.replaced, "first": first})
    else:
        _show(found, compare)
    return MISMATCH if found.wrong and not found.replaced else OK


def _show(found: Drift, compare: bool) -> None:
    for one in found.first:
        note(
            f"{one.what}: {one.surface} row {readable(one.row_id)} of {readable(one.root)} of {readable(one.tenant_id)}"
        )
    told = "were wrong, and were replaced" if found.replaced else "are wrong"
    note(f"the log gives {found.rows} rows; {found.wrong} {told}; the rows of {found.late} roots were late")
    if found.wrong and not found.replaced and not compare:
        note("nothing was replaced; noetl rebuild --accept does")
