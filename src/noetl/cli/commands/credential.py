"""noetl credential: secrets by name, sealed in the wallet."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from noetl.cli.options import common, home_of, run_async, settings_of
from noetl.cli.output import note, print_json, table

__all__ = ["command"]

_HIDDEN = "***"


@click.group("credential", epilog="Example: noetl credential add warehouse --type postgres --prompt")
def command() -> None:
    """Store secrets by name, sealed; playbooks refer to them by that name."""


@command.command("add", epilog="Example: noetl credential add warehouse --type postgres --file warehouse.yaml")
@click.argument("name")
@click.option(
    "--type", "kind", metavar="TYPE", help="postgres, nats, kafka, secret, bearer, basic, api_key, s3, ... or your own."
)
@click.option("--data", multiple=True, metavar="NAME=VALUE", help="A field that is no secret; may be repeated.")
@click.option(
    "--file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Fields from a JSON or YAML file."
)
@click.option("--stdin", is_flag=True, help="Fields, or the one missing value, from standard input.")
@click.option("--prompt", is_flag=True, help="Ask for missing fields; secrets are not shown while you type.")
@click.option("--description", default="", metavar="TEXT", help="What it is for.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="May be repeated.")
@click.option("--replace", is_flag=True, help="Store a new version of a name that is taken.")
@common
def add(
    name: str,
    kind: str | None,
    data: tuple[str, ...],
    file: Path | None,
    stdin: bool,
    prompt: bool,
    description: str,
    tags: tuple[str, ...],
    replace: bool,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> int | None:
    """Store a credential, sealed with the wallet's key.

    Give secrets by --file, --stdin or --prompt: what stands on the command line stays in your shell's history. On a
    terminal the fields that are missing are asked for.
    """
    from noetl.cli.credentials import Given, complete, parse_data, read_file, read_text
    from noetl.tools.secrets.types import check_name

    if file is not None and stdin:
        raise click.UsageError("give --file or --stdin, not both")
    given = Given(name=check_name(name), type=kind, description=description, tags=tags, data=parse_data(data))
    if file is not None:
        given.merge(read_file(file), str(file))
    if stdin:
        given.merge(read_text(sys.stdin.read(), kind, given.data), "standard input")
    return run_async(_add(complete(given, ask=prompt), replace, home, tenant, as_json))


async def _add(credential: Any, replace: bool, home: Path | None, tenant: str | None, as_json: bool) -> None:
    from noetl.runtime.callers import local_caller
    from noetl.runtime.custody import custody_of
    from noetl.runtime.wiring import open_embedded
    from noetl.tools.secrets.types import check_credential

    check_credential(credential)  # before anything is made
    settings = settings_of(tenant)
    async with open_embedded(home_of(home), settings, create=True) as embedded:
        info = await custody_of(embedded, settings).put(local_caller(settings), credential, replace=replace)
    if as_json:
        print_json(info)
    else:
        note(f"stored {info.name} ({info.type}), version {info.version}, sealed with {info.key_id}")


@command.command("list", epilog="Example: noetl credential list --type postgres")
@click.option("--type", "kind", metavar="TYPE", help="Only these.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, metavar="N", help="At most this many."
)
@click.option("--cursor", metavar="TEXT", help="Where the last page ended.")
@common
def list_(
    kind: str | None, limit: int, cursor: str | None, home: Path | None, tenant: str | None, as_json: bool
) -> int | None:
    """List credentials by name, without their values."""
    return run_async(_list(kind, limit, cursor, home, tenant, as_json))


async def _list(
    kind: str | None, limit: int, cursor: str | None, home: Path | None, tenant: str | None, as_json: bool
) -> None:
    from noetl.ports.credentials import CredentialPage
    from noetl.runtime.wiring import open_embedded

    place, settings = home_of(home), settings_of(tenant)
    page = CredentialPage(credentials=[], next_cursor=None)
    if place.has_ledger():
        async with open_embedded(place, settings) as embedded:
            page = await embedded.credentials.list(settings.tenant.id, kind=kind, cursor=cursor, limit=limit)
    if as_json:
        print_json(page)
        return
    if not page.credentials:
        note("No credentials yet." if kind is None and cursor is None else "No credentials match.")
        return
    table(
        None,
        ("name", "type", "fields", "version", "updated", "description"),
        [
            (info.name, info.type, ", ".join(info.fields), info.version, _short(info.updated_at), info.description)
            for info in page.credentials
        ],
    )
    if page.next_cursor:
        note(f"More: noetl credential list --cursor {page.next_cursor}")


@command.command("show", epilog="Example: noetl credential show warehouse")
@click.argument("name")
@click.option("--reveal", is_flag=True, help="Print the values too.")
@common
def show(name: str, reveal: bool, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Show a credential; its values only with --reveal."""
    return run_async(_show(name, reveal, home, tenant, as_json))


async def _show(name: str, reveal: bool, home: Path | None, tenant: str | None, as_json: bool) -> None:
    from noetl.runtime.wiring import open_embedded

    settings = settings_of(tenant)
    async with open_embedded(home_of(home), settings) as embedded:
        info = await embedded.credentials.get(settings.tenant.id, name)
        data = (await embedded.credentials.resolve(settings.tenant.id, name)).data if reveal else None
    document = msgspec.to_builtins(info)
    if as_json:
        print_json(document if data is None else {**document, "data": data})
        return
    shown = dict.fromkeys(info.fields, _HIDDEN) if data is None else data
    known = [(field, value) for field, value in document.items() if field != "fields" and value not in ("", (), [])]
    table(None, ("", "value"), [*known, *((f"data.{field}", value) for field, value in shown.items())])


@command.command("remove", epilog="Example: noetl credential remove warehouse --yes")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask on a terminal.")
@common
def remove(name: str, yes: bool, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Remove a credential for good."""
    if not yes and sys.stdin.isatty():
        click.confirm(f"Remove credential {name} for good?", abort=True, err=True)
    return run_async(_remove(name, home, tenant, as_json))


async def _remove(name: str, home: Path | None, tenant: str | None, as_json: bool) -> None:
    from noetl.runtime.callers import local_caller
    from noetl.runtime.custody import custody_of
    from noetl.runtime.wiring import open_embedded

    settings = settings_of(tenant)
    async with open_embedded(home_of(home), settings) as embedded:
        await custody_of(embedded, settings).remove(local_caller(settings), name)
    if as_json:
        print_json({"name": name, "removed": True})
    else:
        note(f"removed {name}")


@command.command("rotate", epilog="Example: noetl credential rotate --retire")
@click.option("--retire", is_flag=True, help="Forget the older keys; older backups of the home then stay sealed.")
@common
def rotate(retire: bool, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Make a new key and seal every credential of every tenant with it; values stay the same.

    Killed at any moment, everything still opens, and running it again finishes the work.
    """
    return run_async(_rotate(retire, home, tenant, as_json))


async def _rotate(retire: bool, home: Path | None, tenant: str | None, as_json: bool) -> None:
    from noetl.runtime.callers import local_caller
    from noetl.runtime.custody import custody_of
    from noetl.runtime.wiring import open_embedded

    settings = settings_of(tenant)
    async with open_embedded(home_of(home), settings) as embedded:
        rotation = await custody_of(embedded, settings).rotate(local_caller(settings), retire=retire)
    if as_json:
        print_json(rotation)
    else:
        note(f"{rotation.rewrapped} credentials are sealed with {rotation.key_id} now (was {rotation.previous_key_id})")


def _short(moment: str) -> str:
    return moment[:19].replace("T", " ")
