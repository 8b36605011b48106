"""noetl list: the executions there are."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import click

from noetl.cli.options import common, home_of, run_async, settings_of
from noetl.cli.output import note, print_json, table, with_text_ids
from noetl.cli.remote import context_option, list_on, target_of
from noetl.errors import Unavailable

__all__ = ["command"]

_FIELDS = ("execution_id", "path", "status", "started_at", "ended_at", "event_count", "parent_execution_id")


@click.command(epilog="Example: noetl list --status FAILED --limit 20")
@click.option(
    "--status", type=click.Choice(["PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"]), help="Only these."
)
@click.option("--path", "path_", metavar="PATH", help="Only executions of this playbook.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, metavar="N", help="At most this many."
)
@click.option("--cursor", metavar="TEXT", help="Where the last page ended.")
@context_option
@common
def command(
    status: str | None,
    path_: str | None,
    limit: int,
    cursor: str | None,
    context: str | None,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> int | None:
    """List executions, newest first."""
    if (target := target_of(context, home)) is not None:
        return list_on(target, status, path_, limit, cursor, as_json)
    where: dict[str, str | int] = {n: v for n, v in (("status", status), ("path", path_)) if v is not None}
    return run_async(_list(where, limit, cursor, home, tenant, as_json))


async def _list(
    where: dict[str, str | int], limit: int, cursor: str | None, home: Path | None, tenant: str | None, as_json: bool
) -> None:
    rows, next_cursor = await _query(where, limit, cursor, home, tenant)
    if as_json:
        print_json({"executions": rows, "next_cursor": next_cursor})
        return
    if not rows:
        note("No executions yet." if not where and cursor is None else "No executions match.")
        return
    table(
        None,
        ("execution", "playbook", "status", "started", "events", "tenant"),
        [
            (row["execution_id"], row.get("path"), row.get("status"), _short(row.get("started_at")),
             row.get("event_count"), row["tenant_id"])
            for row in rows
        ],
    )  # fmt: skip
    if next_cursor:
        note(f"More: noetl list --cursor {next_cursor}")


async def _query(
    where: dict[str, str | int], limit: int, cursor: str | None, home: Path | None, tenant: str | None
) -> tuple[list[dict[str, Any]], str | None]:
    import msgspec

    from noetl.runtime.wiring import open_embedded

    place = home_of(home)
    if not place.has_ledger():
        return [], None
    async with open_embedded(place, settings_of(tenant)) as embedded:
        with contextlib.suppress(Unavailable):  # somebody is writing: what is there is still worth showing
            await embedded.projector.catch_up()  # a run that was killed had no time to
        page = await embedded.projections.query("execution", tenant_id=tenant, where=where, cursor=cursor, limit=limit)
    rows = []
    for item in page.rows:
        row = msgspec.json.decode(item.row)
        row = {name: row.get(name) for name in _FIELDS}
        row["execution_id"] = row["execution_id"] or int(item.root.stream_id.split("/")[1])
        rows.append(with_text_ids({**row, "tenant_id": item.root.tenant_id}))
    return rows, page.next_cursor


def _short(moment: str | None) -> str | None:
    return moment and moment[:19].replace("T", " ")
