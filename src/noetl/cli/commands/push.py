"""noetl push: deliver an execution that ran here to a server."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noetl.cli.contexts import LOCAL, Contexts, contexts_file
from noetl.cli.options import common, execution_id_of, find_root, home_of, run_async, settings_of
from noetl.cli.output import note, print_json
from noetl.cli.upload import Target, post
from noetl.errors import Conflict, IntegrityMismatch, InvalidInput

if TYPE_CHECKING:
    from noetl.archive.parcel import Parcel
    from noetl.runtime.delivery import Examined

__all__ = ["command"]

_SECONDS = 30.0
_ROUTE = "/api/events/batch"


@click.command(epilog="Example: noetl push 318485246779594112 --to http://127.0.0.1:8082")
@click.argument("execution", metavar="ID")
@click.option("--to", "url", metavar="URL", help="The server's address.")
@click.option("--context", metavar="NAME", help="The server by the name of its context; the current one by default.")
@click.option("--token-env", metavar="VAR", help="The variable that holds the token.")
@click.option("--as", "as_tenant", metavar="TENANT", help="Take it over into this tenant, which is the token's.")
@click.option("--unfinished", is_flag=True, help="Also while it has not ended; the server may go on with it.")
@click.option("--dry-run", is_flag=True, help="Make and check the files, send nothing.")
@common
def command(
    execution: str,
    url: str | None,
    context: str | None,
    token_env: str | None,
    as_tenant: str | None,
    unfinished: bool,
    dry_run: bool,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> int | None:
    """Deliver an execution, and those it has called, to a server: in one request, all of it or nothing.

    What is sent are the files that `noetl run --offline` leaves in local/ in the home; where they are missing
    or out of date they are made from the ledger. The server proves every event before it takes any. Pushing
    twice is harmless.
    """
    target = None if dry_run else _target(url, context, token_env)
    return run_async(_push(execution_id_of(execution), target, as_tenant, unfinished, home, tenant, as_json))


async def _push(
    execution_id: int,
    target: Target | None,
    as_tenant: str | None,
    unfinished: bool,
    home: Path | None,
    tenant: str | None,
    as_json: bool,
) -> None:
    from noetl.api.client import address_of
    from noetl.api.server import Server
    from noetl.archive.parcel import pack
    from noetl.runtime.buffers import keep_buffers
    from noetl.runtime.wiring import open_embedded

    settings, place = settings_of(tenant), home_of(home)
    async with open_embedded(place, settings) as embedded:
        root = await find_root(embedded, str(execution_id), settings)
        directories = await keep_buffers(embedded, place.path, root)
    examined = await asyncio.to_thread(_examined, directories, unfinished)
    parcel = await asyncio.to_thread(pack, directories)
    document: dict[str, Any] = {
        "execution_id": str(execution_id),
        "executions": [str(one) for one in examined.executions],
        "events": examined.events,
        "payloads": len(examined.payloads),
        "bytes": parcel.length,
        "buffer": str(directories[0]),
    }
    if target is None:
        _conclude({**document, "status": "not sent"}, "the server", as_json)
        return
    await Server(address_of(target.url), target.token, _SECONDS).check()
    headers = {
        "Content-Type": "application/x-tar",
        "X-NoETL-Execution-Id": str(execution_id),
        "X-NoETL-Event-Count": str(examined.events),
    }
    if as_tenant is not None:
        headers["X-NoETL-As"] = as_tenant
    answer = await asyncio.to_thread(_send, target, headers, parcel, quiet=as_json)
    said = {name: answer.get(name) for name in ("status", "request_id", "written", "position")}
    _conclude({**document, "url": target.url, **said}, target.url, as_json)


def _examined(directories: list[Path], unfinished: bool) -> Examined:
    """Prove the files before they are sent: what is wrong with them is said here, where it can be mended."""
    from noetl.kernel.upcast import default_registry
    from noetl.runtime.delivery import buffer_part, examine

    mend = f"delete {directories[0].parent} and push again: it is made from the ledger"
    try:
        parts = [buffer_part(directory, whole=True) for directory in directories]
        examined = examine(parts, default_registry())
        for event_id, ref in examined.missing:
            raise IntegrityMismatch(f"payload {ref.sha256} is missing, which event {event_id} refers to")
    except IntegrityMismatch as error:
        raise IntegrityMismatch(f"{error.message}; nothing was sent", hint=mend) from None
    for part in parts:
        if part.metadata is not None and part.metadata.ended_at is None and not unfinished:
            raise InvalidInput(
                f"execution {part.name} has not ended, and the server would go on with it beside this home",
                hint=f"noetl resume {part.name}, or noetl cancel {part.name}; or hand it over with --unfinished",
            )
    return examined


def _target(url: str | None, context: str | None, token_env: str | None) -> Target:
    if url is not None and context is not None:
        raise InvalidInput("--to and --context both name a server", hint="give one of them")
    if url is not None:
        return Target(url=url, token=_token(token_env))
    contexts = Contexts.load(contexts_file(os.environ))
    name = context or contexts.current
    if name is None or name == LOCAL:
        raise InvalidInput(
            "there is no server to push to", hint="name one: --to http://127.0.0.1:8082, or --context NAME"
        )
    found = contexts.find(name)
    return Target(url=found.url, token=_token(token_env) or found.token(name, os.environ))


def _token(token_env: str | None) -> str | None:
    if token_env is None:
        return None
    token = os.environ.get(token_env, "").strip()
    if not token:
        raise InvalidInput(f"the variable {token_env} is not set", hint=f"export {token_env}=<token>")
    return token


def _send(target: Target, headers: dict[str, str], parcel: Parcel, *, quiet: bool) -> dict[str, Any]:
    with click.progressbar(
        length=parcel.length, label="pushing", file=sys.stderr, hidden=quiet or not sys.stderr.isatty()
    ) as bar:

        def watched() -> Iterator[bytes]:
            for chunk in parcel.chunks():
                yield chunk
                bar.update(len(chunk))

        try:
            return post(target, _ROUTE, headers, parcel.length, watched())
        except Conflict as error:  # two histories claim to be one: for whoever pushes, a mismatch
            raise IntegrityMismatch(f"{target.url}: {error.message}", hint=error.hint) from None


def _conclude(document: dict[str, Any], where: str, as_json: bool) -> None:
    if as_json:
        print_json(document)
        return
    amount = f"{document['events']} events and {document['payloads']} payloads of {document['execution_id']}"
    called = len(document["executions"]) - 1
    if called:
        amount += f" and {called} it called"
    if document["status"] == "not sent":
        note(f"{amount}: checked, {document['bytes']} bytes in {document['buffer']}; nothing was sent")
    elif document["status"] == "already there":
        note(f"{amount}: already there, at {where}")
    else:
        note(f"Pushed {amount} to {where}")
