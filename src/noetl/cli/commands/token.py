"""noetl token: who may call the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from noetl.cli.options import common, home_of, run_async, settings_of
from noetl.cli.output import note, print_json, table

__all__ = ["command"]

_NEVER = "never"
_LONGEST = 100 * 365 * 86400.0


@click.group("token")
def command() -> None:
    """Make and revoke the tokens that callers of a server with --auth token need."""


@command.command("create", epilog="Example: noetl token create --name ci --role operator --expires 30d")
@click.option("--name", required=True, metavar="TEXT", help="Who uses it; stands in the events as token:TEXT.")
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice(["reader", "operator", "admin", "worker"]),
    default=("reader",),
    show_default=True,
    help="What it may do; may be repeated.",
)
@click.option("--organization", metavar="ID", help="Organisation of the tenant  [tenant.organization]")
@click.option(
    "--expires", default="90d", show_default=True, metavar="DURATION", help=f"How long it holds: 12h, 30d or {_NEVER}."
)
@common
def create(
    name: str,
    roles: tuple[str, ...],
    organization: str | None,
    expires: str,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> int | None:
    """Make a token and show it, once: only its digest is kept.

    A reader may look at everything of the tenant but the values of credentials, an operator may also register and run
    playbooks, an admin may do everything. A worker may run commands of every tenant of this installation, with the
    credentials they name, and nothing else: give it to noetl worker only.
    """
    return run_async(_create(name, roles, organization, _seconds(expires), home, tenant, as_json))


async def _create(
    name: str,
    roles: tuple[str, ...],
    organization: str | None,
    seconds: float | None,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> None:
    import msgspec

    from noetl.runtime.callers import local_caller
    from noetl.runtime.custody import custody_of
    from noetl.runtime.wiring import open_embedded

    settings = settings_of(tenant)
    caller = local_caller(settings)
    if organization is not None:
        caller = msgspec.structs.replace(caller, organization_id=organization)
    async with open_embedded(home_of(home), settings, create=True) as embedded:
        grant = await custody_of(embedded, settings).create_token(caller, name, roles, seconds=seconds)
    if as_json:
        print_json({**msgspec.to_builtins(grant.info), "token": grant.token})
        return
    ends = f"until {_short(grant.info.expires_at)}" if grant.info.expires_at else "without an end"
    note(f"{name} may call the server as {', '.join(grant.info.roles)} of {grant.info.tenant_id}, {ends}")
    note("this is the only time the token is shown:")
    click.echo(grant.token)


@command.command("adopt", epilog="Example: noetl token adopt --name workers --role worker --token-env WORKER_TOKEN")
@click.option("--name", required=True, metavar="TEXT", help="Who uses it; stands in the events as token:TEXT.")
@click.option("--role", "roles", multiple=True, required=True,
              type=click.Choice(["reader", "operator", "admin", "worker"]), help="What it may do; may be repeated.",
              )  # fmt: skip
@click.option("--token-env", required=True, metavar="VAR", help="The environment variable that has the token.")
@common
def adopt(
    name: str, roles: tuple[str, ...], token_env: str, home: Path | None, tenant: str | None, as_json: bool
) -> int | None:
    """Let a token in that was made elsewhere, without an end: one of noetl deploy secrets.

    It may be done again and again. Another token of this name is revoked.
    """
    return run_async(_adopt(name, roles, token_env, home, tenant, as_json))


async def _adopt(
    name: str, roles: tuple[str, ...], token_env: str, home: Path | None, tenant: str | None, as_json: bool
) -> None:
    import os

    from noetl.errors import InvalidInput
    from noetl.runtime.callers import local_caller
    from noetl.runtime.custody import custody_of
    from noetl.runtime.wiring import open_embedded

    text = os.environ.get(token_env, "").strip()
    if not text:
        raise InvalidInput(f"--token-env: {token_env} is not set", hint=f"export {token_env}=ntl_...")
    settings = settings_of(tenant)
    async with open_embedded(home_of(home), settings, create=True) as embedded:
        info = await custody_of(embedded, settings).adopt_token(local_caller(settings), text, name, roles, seconds=None)
    if as_json:
        print_json(info)
    else:
        note(f"{name} may call the server as {', '.join(info.roles)} of {info.tenant_id}")


@command.command("list", epilog="Example: noetl token list")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, metavar="N", help="At most this many."
)
@click.option("--cursor", metavar="TEXT", help="Where the last page ended.")
@common
def list_(limit: int, cursor: str | None, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """List the tokens of the tenant, those that have ended included."""
    return run_async(_list(limit, cursor, home, tenant, as_json))


async def _list(limit: int, cursor: str | None, home: Path | None, tenant: str | None, as_json: bool) -> None:
    from noetl.kernel.time import format_time
    from noetl.ports.tokens import TokenPage
    from noetl.runtime.clock import SystemClock
    from noetl.runtime.wiring import open_embedded

    place, settings = home_of(home), settings_of(tenant)
    page = TokenPage(tokens=[], next_cursor=None)
    if place.has_ledger():
        async with open_embedded(place, settings) as embedded:
            page = await embedded.tokens.list(settings.tenant.id, cursor=cursor, limit=limit)
    if as_json:
        print_json(page)
        return
    if not page.tokens:
        note("No tokens yet.")
        return
    now = format_time(SystemClock().now())
    table(
        None,
        ("name", "token_id", "roles", "state", "expires", "last used"),
        [_cells(info, now) for info in page.tokens],
    )
    if page.next_cursor:
        note(f"More: noetl token list --cursor {page.next_cursor}")


@command.command("revoke", epilog="Example: noetl token revoke ci")
@click.argument("name")
@common
def revoke(name: str, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """End the token with this name or id. A server that is running refuses it from its next request on."""
    return run_async(_revoke(name, home, tenant, as_json))


async def _revoke(name: str, home: Path | None, tenant: str | None, as_json: bool) -> None:
    from noetl.runtime.callers import local_caller
    from noetl.runtime.custody import custody_of
    from noetl.runtime.wiring import open_embedded

    settings = settings_of(tenant)
    async with open_embedded(home_of(home), settings) as embedded:
        info = await custody_of(embedded, settings).revoke_token(local_caller(settings), name)
    if as_json:
        print_json(info)
    else:
        note(f"revoked {info.name} ({info.token_id})")


def _seconds(text: str) -> float | None:
    from noetl.errors import InvalidInput, InvalidSetting
    from noetl.settings import parse_duration

    if text == _NEVER:
        return None
    try:
        seconds = parse_duration(text)
    except InvalidSetting as error:
        raise InvalidInput(f"--expires: {error.message}", hint=f"such as 12h, 30d or {_NEVER}") from None
    if not 0 < seconds <= _LONGEST:
        raise InvalidInput(f"--expires {text}: a token holds for more than nothing and at most 100 years")
    return seconds


def _cells(info: Any, now: str) -> tuple[Any, ...]:
    ends = _short(info.expires_at)
    return (info.name, info.token_id, ", ".join(info.roles), _state(info, now), ends, info.last_used_on)


def _state(info: Any, now: str) -> str:
    if info.revoked_at is not None:
        return "revoked"
    return "expired" if info.expires_at is not None and info.expires_at <= now else "in force"


def _short(moment: str | None) -> str:
    return "never" if moment is None else moment[:19].replace("T", " ")
