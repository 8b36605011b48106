"""noetl catalog: the documents that were registered."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noetl.cli.options import common, home_of, run_async, settings_of
from noetl.cli.output import note, print_json, table
from noetl.errors import NotFound

if TYPE_CHECKING:
    from noetl.ports.catalog import CatalogEntry

__all__ = ["command"]


@click.group("catalog", epilog="Example: noetl catalog list --prefix sales/")
def command() -> None:
    """Look at the playbooks and subscriptions that were registered."""


@command.command("list", epilog="Example: noetl catalog list --prefix sales/")
@click.option("--prefix", default="", metavar="TEXT", help="Only paths that begin like this.")
@click.option("--kind", type=click.Choice(["Playbook", "Subscription"]), help="Only documents of this kind.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, metavar="N", help="At most this many."
)
@click.option("--cursor", metavar="TEXT", help="Where the last page ended.")
@common
def list_(
    prefix: str,
    kind: str | None,
    limit: int,
    cursor: str | None,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> int | None:
    """List the latest version of each registered path."""
    return run_async(_list(prefix, kind, limit, cursor, home, tenant, as_json))


async def _list(
    prefix: str, kind: str | None, limit: int, cursor: str | None, home: Path | None, tenant: str | None, as_json: bool
) -> None:
    from noetl.ports.catalog import CatalogPage
    from noetl.runtime.wiring import open_embedded

    place, settings = home_of(home), settings_of(tenant)
    page = CatalogPage(entries=[], next_cursor=None)
    if place.has_ledger():
        async with open_embedded(place, settings) as embedded:
            page = await embedded.catalog.list(settings.tenant.id, prefix=prefix, kind=kind, cursor=cursor, limit=limit)
    if as_json:
        print_json({"entries": [_document(entry) for entry in page.entries], "next_cursor": page.next_cursor})
        return
    if not page.entries:
        note("Nothing is registered yet: noetl register FILE" if not prefix and not kind else "Nothing matches.")
        return
    table(
        None,
        ("path", "version", "kind", "registered", "sha256"),
        [
            (entry.path, entry.version, entry.kind, entry.created_at[:19].replace("T", " "), entry.sha256[:12])
            for entry in page.entries
        ],
    )
    if page.next_cursor:
        note(f"More: noetl catalog list --cursor {page.next_cursor}")


@command.command("show", epilog="Example: noetl catalog show sales/orders@2")
@click.argument("path", metavar="PATH[@V]")
@common
def show(path: str, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Print a registered document as it was written.

    Without @V it is the latest version.
    """
    return run_async(_show(path, home, tenant, as_json))


async def _show(ref: str, home: Path | None, tenant: str | None, as_json: bool) -> None:
    from noetl.runtime.embedded.runner import find_document
    from noetl.runtime.wiring import open_embedded

    settings = settings_of(tenant)
    path, _, version = ref.removeprefix("catalog://").partition("@")
    async with open_embedded(home_of(home), settings) as embedded:
        try:
            entry = await find_document(embedded.catalog, settings.tenant.id, path, version or None)
        except NotFound as error:
            raise NotFound(error.message, hint=error.hint or "noetl catalog list shows what there is") from None
        versions = [other.version for other in await embedded.catalog.versions(settings.tenant.id, entry.path)]
    if as_json:
        print_json({**_document(entry), "versions": versions, "content": entry.content})
        return
    note(f"{entry.path} version {entry.version} of {versions[-1]}, registered {entry.created_at}")
    click.echo(entry.content, nl=not entry.content.endswith("\n"))


def _document(entry: CatalogEntry) -> dict[str, Any]:
    return {
        "path": entry.path,
        "version": entry.version,
        "kind": entry.kind,
        "sha256": entry.sha256,
        "created_at": entry.created_at,
    }
