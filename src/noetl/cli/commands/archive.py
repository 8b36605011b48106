"""noetl archive: histories as signed bundles in an object store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noetl.cli.counting import counted, size
from noetl.cli.exits import MISMATCH, OK
from noetl.cli.options import common, find_root, home_of, run_async, settings_of
from noetl.cli.output import note, print_json, readable, table
from noetl.errors import Conflict, IntegrityMismatch, NoetlError, Unavailable

if TYPE_CHECKING:
    from noetl.archive.bundle import Bundle
    from noetl.archive.bundle.checking import Checked
    from noetl.ports.archives import ArchiveEntry

__all__ = ["command"]

_MAKE = "make"
_PAGE = 1000
_MOST_ROWS = 20


class _Archive(click.Group):
    """A group whose first command is also meant by an execution's id, or by options, alone."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [_MAKE, *args]
        return super().parse_args(ctx, args)


@click.group("archive", cls=_Archive, epilog="Example: noetl archive 318485246779594112")
def command() -> None:
    """Archive executions that have ended, and look at what is archived.

    `noetl archive ID` and `noetl archive --all` are short for `noetl archive make`.
    """


@command.command(_MAKE, epilog="Example: noetl archive --all --older-than 7d")
@click.argument("execution", metavar="[ID]", required=False)
@click.option("--all", "everything", is_flag=True, help="Every execution of the tenant that is not archived yet.")
@click.option("--older-than", metavar="TIME", help="With --all: only those that ended this long ago, such as 7d.")
@click.option("--with-payloads", is_flag=True, help="Copy results, too, for a restore elsewhere  [archive.payloads]")
@common
def make(
    execution: str | None,
    everything: bool,
    older_than: str | None,
    with_payloads: bool,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> int | None:
    """Archive an execution with all that it has called, as a signed bundle that never changes.

    Again, if it is archived as it is, nothing happens; another history of it is refused.
    """
    if everything == (execution is not None):
        raise click.UsageError("name an execution, or give --all")
    if older_than is not None and not everything:
        raise click.UsageError("--older-than goes with --all")
    payloads = True if with_payloads else None
    if execution is not None:
        return run_async(_one(execution, payloads, home, tenant, as_json))
    return run_async(_all(older_than, payloads, home, tenant, as_json))


@command.command("list", epilog="Example: noetl archive list --json")
@common
def list_(home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """List what is archived, oldest first."""
    return run_async(_list(home, tenant, as_json))


@command.command(
    "show", epilog="Example: noetl archive show s3://cold/noetl/env=prod/.../execution=318485246779594112/"
)
@click.argument("uri", metavar="URI")
@click.option("--trusted", metavar="KEY", help="The public key that must have signed it.")
@common
def show(uri: str, trusted: str | None, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Show what a bundle says of itself. Its signature is checked, its objects are not. Needs no ledger."""
    return run_async(_show(uri, trusted, as_json))


@command.command("verify", epilog="Example: noetl archive verify URI --trusted $(noetl archive key)")
@click.argument("uri", metavar="URI")
@click.option("--trusted", metavar="KEY", help="The public key that must have signed it.")
@common
def verify(uri: str, trusted: str | None, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Read a whole bundle and check all of it. Needs no ledger. Exits 4 if anything is not as it was archived."""
    return run_async(_verify(uri, trusted, as_json))


@command.command("key", epilog="Example: noetl archive key")
@common
def key(home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Show the public key that bundles of this home are signed with; it is made if there is none.

    Give it to whoever is to check them. The private key is in the wallet, or in NOETL_ARCHIVE_KEY.
    """
    return run_async(_key(home, as_json))


async def _one(execution: str, payloads: bool | None, home: Path | None, tenant: str | None, as_json: bool) -> int:
    from noetl.runtime.archiving import open_archiver
    from noetl.runtime.wiring import open_embedded

    settings, place = settings_of(tenant), home_of(home)
    async with open_embedded(place, settings) as embedded:
        root = await find_root(embedded, execution, settings)
        archiver = await open_archiver(embedded, place, settings)
        try:
            archived = await archiver.archive(root, payloads=payloads)
        except Conflict as error:
            raise IntegrityMismatch(error.message, hint=error.hint) from None
    if as_json:
        print_json({**_document(archived.entry), "created": archived.created})
    else:
        note(f"{archived.entry.root.stream_id} {'is archived' if archived.created else 'was archived already'}")
        click.echo(archived.entry.uri)
    return OK


async def _all(
    older_than: str | None, payloads: bool | None, home: Path | None, tenant: str | None, as_json: bool
) -> int:
    from noetl.runtime.archiving import open_archiver
    from noetl.runtime.archiving.sweep import ended_roots
    from noetl.runtime.wiring import open_embedded
    from noetl.units import parse_duration

    settings, place = settings_of(tenant), home_of(home)
    made: list[ArchiveEntry] = []
    failed: list[tuple[str, str]] = []
    async with open_embedded(place, settings) as embedded:
        archiver = await open_archiver(embedded, place, settings)
        await embedded.projector.catch_up(snapshots=False)
        before = None if older_than is None else embedded.clock.now() - round(parse_duration(older_than) * 1e6)
        with counted(quiet=as_json) as progress:
            async for member in ended_roots(embedded, settings.tenant.id, ended_before=before):
                try:
                    archived = await archiver.archive(member.root, payloads=payloads)
                except Unavailable:
                    raise
                except NoetlError as error:  # one that cannot be archived must not keep the others from it
                    failed.append((member.root.stream_id, error.message))
                    continue
                made += [archived.entry] if archived.created else []
                progress("archived", len(made))
    if as_json:
        problems = [{"root": root, "error": reason} for root, reason in failed]
        print_json({"archived": [_document(entry) for entry in made], "failed": problems})
    else:
        events, total = sum(entry.events for entry in made), sum(entry.bytes for entry in made)
        click.echo(f"Archived {len(made)} executions: {events} events, {size(total)}")
        for root, reason in failed[:_MOST_ROWS]:
            note(f"  {root} is not archived: {readable(reason)}")
    return MISMATCH if failed else OK


async def _list(home: Path | None, tenant: str | None, as_json: bool) -> int:
    from noetl.runtime.wiring import open_embedded

    settings = settings_of(tenant)
    entries: list[ArchiveEntry] = []
    async with open_embedded(home_of(home), settings) as embedded:
        while page := await embedded.archives.page(
            settings.tenant.id, after=entries[-1].root if entries else None, limit=_PAGE
        ):
            entries += page
    if as_json:
        print_json({"archives": [_document(entry) for entry in entries]})
        return OK
    for entry in entries:
        name = entry.root.stream_id.rpartition("/")[2]
        click.echo(f"{click.style(name, bold=True)}  {_time(entry)}  {entry.events} events  {size(entry.bytes)}")
        click.echo(f"  {readable(entry.uri)}")
    if not entries:
        note("nothing is archived")
    return OK


async def _show(uri: str, trusted: str | None, as_json: bool) -> int:
    bundle = await open_at(uri, trusted)
    manifest = bundle.manifest
    if as_json:
        import msgspec

        print_json({"uri": uri, "manifest_sha256": bundle.manifest_sha256, **msgspec.to_builtins(manifest)})
        return OK
    click.secho(f"execution/{manifest.execution_id}  {readable(manifest.executions[0].path or '')}", bold=True)
    click.echo(f"  tenant     {readable(manifest.tenant_id)}")
    click.echo(
        f"  events     {manifest.events} in {len(manifest.segments)} segments, the last at {manifest.created_at}"
    )
    click.echo(f"  objects    {len(manifest.parts) + len(manifest.segments)}, {size(manifest.bytes)}")
    click.echo(f"  payloads   {'copied' if manifest.payloads else 'in the store of payloads'}")
    click.echo(f"  manifest   {bundle.manifest_sha256}")
    click.echo(f"  signed by  {manifest.public_key}")
    shown = manifest.executions[:_MOST_ROWS]
    more = f" (first {_MOST_ROWS} of {len(manifest.executions)})" if len(manifest.executions) > _MOST_ROWS else ""
    rows = [(one.execution_id, readable(one.path or ""), one.status, one.events, one.ended_at) for one in shown]
    table("executions" + more, ("execution", "path", "status", "events", "ended"), rows)
    return OK


async def _verify(uri: str, trusted: str | None, as_json: bool) -> int:
    from noetl.archive.bundle.checking import check_bundle
    from noetl.runtime.archiving.places import open_uri

    objects, prefix = await open_uri(uri, settings_of())
    found = await check_bundle(objects, prefix, trusted=_public_key(trusted))
    if as_json:
        print_json(_checked(uri, found))
    elif found.ok:
        assert found.manifest is not None
        whose = "by the trusted key" if found.trusted else f"by {found.manifest.public_key}"
        click.echo(f"Sound: {found.events} events, {found.objects} objects, {size(found.bytes)}, signed {whose}")
    else:
        for problem in found.problems:
            click.echo(f"  {readable(problem)}")
        note(f"{len(found.problems)} problems: this is not what was archived")
    return OK if found.ok else MISMATCH


async def _key(home: Path | None, as_json: bool) -> int:
    import os

    from noetl.tools.secrets.signing import ALGORITHM, load_signer
    from noetl.tools.secrets.wallet import archive_keys

    place = home_of(home)
    place.create()
    signer = await load_signer(archive_keys(place.wallet, os.environ))
    if as_json:
        print_json({"algorithm": ALGORITHM, "public_key": signer.public_key})
    else:
        click.echo(signer.public_key)
    return OK


async def open_at(uri: str, trusted: str | None = None) -> Bundle:
    """The bundle at an address, its signature checked."""
    from noetl.archive.bundle import open_bundle
    from noetl.runtime.archiving.places import open_uri

    objects, prefix = await open_uri(uri, settings_of())
    return await open_bundle(objects, prefix, trusted=_public_key(trusted))


def _public_key(text: str | None) -> str | None:
    if text is None:
        return None
    from noetl.tools.secrets.signing import read_public_key

    return read_public_key(text)


def _document(entry: ArchiveEntry) -> dict[str, Any]:
    return {
        "execution_id": entry.root.stream_id.rpartition("/")[2],
        "tenant_id": entry.root.tenant_id,
        "uri": entry.uri,
        "events": entry.events,
        "first_position": entry.first_position,
        "last_position": entry.last_position,
        "stream_heads": entry.stream_heads,
        "manifest_sha256": entry.manifest_sha256,
        "bytes": entry.bytes,
        "archived_at": _time(entry),
    }


def _time(entry: ArchiveEntry) -> str:
    from noetl.kernel.time import format_time, parse_time

    return format_time(parse_time(entry.archived_at.isoformat()))


def _checked(uri: str, found: Checked) -> dict[str, Any]:
    manifest = found.manifest
    return {
        "uri": uri,
        "ok": found.ok,
        "execution_id": None if manifest is None else manifest.execution_id,
        "events": found.events,
        "objects": found.objects,
        "bytes": found.bytes,
        "manifest_sha256": found.manifest_sha256,
        "public_key": None if manifest is None else manifest.public_key,
        "trusted": found.trusted,
        "problems": found.problems,
    }
