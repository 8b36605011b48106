"""Commands whose executions are on a server: which server is meant, and what it says, as the same documents as here."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from noetl.cli.contexts import LOCAL, Context, Contexts, contexts_file
from noetl.cli.exits import FAILED, OK
from noetl.cli.options import execution_id_of, run_async
from noetl.cli.output import note, print_json, readable, table, with_text_ids
from noetl.cli.rows import Look, show
from noetl.errors import Forbidden, InvalidInput, NoetlError, Unauthenticated, Unavailable

if TYPE_CHECKING:
    from noetl.api.asking import Job
    from noetl.api.server import Server
    from noetl.api.summaries import Summary
    from noetl.kernel.event import Envelope

__all__ = [
    "Target", "ask", "cancel_on", "context_option", "events_on", "list_on", "register_on", "result_on", "run_on",
    "status_on", "target_of", "target_of_run", "topology_on",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])

_SECONDS = 30.0
_FIELDS = ("execution_id", "path", "status", "started_at", "ended_at", "event_count", "parent_execution_id")


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A server, and the name of the context that led to it."""

    name: str
    context: Context


def context_option(function: F) -> F:
    """`--context`, for commands that can ask a server."""
    return click.option(
        "--context", "context", metavar="NAME", envvar="NOETL_CONTEXT",
        help="The server to ask, by the name of its context; `local` for this machine  [NOETL_CONTEXT]",
    )(function)  # fmt: skip


def target_of(context: str | None, home: Path | None) -> Target | None:
    """The server that a command is to ask, or None for the home of this machine.

    That is the context that was named; without one the current context, if playbooks run there and no home was named.
    """
    if context == LOCAL or (context is None and home is not None):
        return None
    found = _named(context)
    return found if found is not None and (context is not None or found.context.runtime == "distributed") else None


def target_of_run(runtime: str, context: str | None, home: Path | None, *, is_file: bool) -> Target | None:
    """The server that is to run a playbook, or None if it runs here."""
    if runtime == "local":
        return None
    if runtime != "auto":
        if context == LOCAL:
            raise InvalidInput("context 'local' has no server", hint="leave --context out, or name another one")
        if (found := _named(context)) is None:
            raise InvalidInput("there is no server to run this on", hint="noetl context add NAME --url URL")
        return found
    if context == LOCAL or (context is None and home is not None):
        return None
    found = _named(context)
    if found is None or found.context.runtime == "local":
        return None
    return found if found.context.runtime == "distributed" or not is_file else None


# --- What is asked ----------------------------------------------------------------------------------------


def run_on(target: Target, job: Job, *, wait: bool, verbose: bool, as_json: bool) -> int:
    """Have a server run something; with `wait` follow it, and give its exit code."""
    return ask(target, lambda server: _run(server, target.name, job, wait, verbose, as_json))


def register_on(target: Target, text: str, show: Callable[[list[dict[str, Any]]], int]) -> int:
    """noetl register, on a server."""

    async def work(server: Server) -> int:
        return show(await server.register_text(text))

    return ask(target, work)


def status_on(target: Target, execution: str, as_json: bool) -> int:
    """noetl status, of a server."""

    async def work(server: Server) -> int:
        summary = await server.summary(execution_id_of(execution))
        _print_fields(summary.document(), as_json)
        return FAILED if summary.status in ("FAILED", "CANCELLED") else OK

    return ask(target, work)


def result_on(target: Target, execution: str, step: str | None, look: Look) -> int:
    """noetl result, of a server."""

    async def work(server: Server) -> int:
        document = await server.result_document(execution_id_of(execution), step)
        show({"execution_id": execution, **document}, step or document.get("step", ""), look)
        return OK

    return ask(target, work)


def topology_on(target: Target, show: Callable[[dict[str, Any]], None]) -> int:
    """noetl topology, of a server."""

    async def work(server: Server) -> int:
        show(await server.topology())
        return OK

    return ask(target, work)


def cancel_on(target: Target, execution: str, reason: str, cascade: bool, as_json: bool) -> int:
    """noetl cancel, of a server."""

    async def work(server: Server) -> int:
        said = await server.cancel_document(execution_id_of(execution), reason, cascade)
        if as_json:
            print_json({name: said[name] for name in ("execution_id", "status", "cancelled_executions")})
        else:
            click.echo(f"{execution}: {said['status'].replace('_', ' ')}")
        return OK

    return ask(target, work)


def list_on(target: Target, status: str | None, path: str | None, limit: int, cursor: str | None, as_json: bool) -> int:
    """noetl list, of a server."""

    async def work(server: Server) -> int:
        page = await server.listing(status=status, path=path, page_size=limit, cursor=cursor)
        rows = [_listed(one) for one in page["executions"]]
        following = page.get("next_cursor")
        if as_json:
            print_json({"executions": rows, "next_cursor": following})
            return OK
        if not rows:
            note(f"No executions on {target.name}.")
            return OK
        shown = ("execution_id", "path", "status", "started_at", "event_count")
        columns = ("execution", "playbook", "status", "started", "events")
        table(None, columns, [[row[name] for name in shown] for row in rows])
        if following:
            note(f"More: noetl list --context {target.name} --cursor {following}")
        return OK

    return ask(target, work)


def events_on(
    target: Target, execution: str, types: Sequence[str], limit: int, cursor: int, follow: bool, as_json: bool
) -> int:
    """noetl events, of a server: the execution's own stream. A cursor is a version in it."""
    execution_id = execution_id_of(execution)

    async def work(server: Server) -> int:
        if follow:
            async for event in server.follow(execution_id, cursor):
                if not types or event.event_type in types:
                    click.echo(msgspec.json.encode(_event(event)).decode() if as_json else _line(event))
            return OK
        found: list[Envelope] = []
        after: int | None = cursor
        while after is not None and len(found) <= limit:
            page, after = await server.events(execution_id, after, limit + 1, types)
            found += page
        following = str(found[limit - 1].stream_version) if len(found) > limit else None
        if as_json:
            print_json({"events": [_event(event) for event in found[:limit]], "next_cursor": following})
            return OK
        for event in found[:limit]:
            click.echo(_line(event))
        if following:
            note(f"More: noetl events {execution} --context {target.name} --cursor {following}")
        return OK

    return ask(target, work)


# --- How it is asked --------------------------------------------------------------------------------------


def ask(target: Target, work: Callable[[Server], Coroutine[Any, Any, int]]) -> int:
    """Ask a server; whatever goes wrong names the context, and how to change it."""
    from noetl.api.client import address_of
    from noetl.api.server import Server

    server = Server(address_of(target.context.url), target.context.token(target.name, os.environ), _SECONDS)

    async def asked() -> int:
        await server.check()
        return await work(server)

    try:
        return run_async(asked()) or OK
    except (Unauthenticated, Forbidden, Unavailable) as error:
        raise _explained(error, target) from None


def _explained(error: NoetlError, target: Target) -> NoetlError:
    change = f"noetl context add {target.name} --replace --url {target.context.url}"
    hint = {
        Unauthenticated: f"{change} --token-env VAR",
        Forbidden: f"use a token that may: {change} --token-env VAR",
    }.get(type(error), f"see that the server runs and the address is right; to change it: {change}")
    return type(error)(f"context '{target.name}': {error.message}", hint=hint)


async def _run(server: Server, name: str, job: Job, wait: bool, verbose: bool, as_json: bool) -> int:
    from noetl.cli.progress import Progress
    from noetl.runtime.embedded.runner import Finished

    accepted = await server.start(job)
    if not wait:
        if as_json:
            print_json(accepted.document())
        else:
            click.echo(str(accepted.execution_id))
            note(f"accepted by {name}; noetl status {accepted.execution_id} --context {name}")
        return OK
    progress = Progress(quiet=as_json, verbose=verbose)
    async with progress.shown():
        async for event in server.follow(accepted.execution_id):
            progress.notice([event])
    summary = await server.summary(accepted.execution_id)
    if as_json:
        print_json(summary.document())
    else:
        finished = Finished(
            execution_id=summary.execution_id, status=summary.status, result=summary.result, error=summary.error
        )
        progress.conclude(summary.document(), finished, None)
        _print_error(summary)
    return OK if summary.status == "COMPLETED" else FAILED


def _print_error(summary: Summary) -> None:
    if summary.error is not None:
        said = f"{summary.error.get('code', 'UNKNOWN')}: {summary.error.get('message', '')}"
        click.secho(f"  {readable(said)}", fg="red", err=True)


def _named(context: str | None) -> Target | None:
    contexts = Contexts.load(contexts_file(os.environ))
    name = context or contexts.current
    return None if name is None else Target(name=name, context=contexts.find(name))


def _listed(one: dict[str, Any]) -> dict[str, Any]:
    spelled = {**one, "started_at": one.get("start_time"), "ended_at": one.get("end_time")}
    return {name: spelled.get(name) for name in _FIELDS}


def _event(event: Envelope) -> dict[str, Any]:
    return with_text_ids(msgspec.to_builtins(event))  # type: ignore[no-any-return]  # a mapping stays a mapping


def _line(event: Envelope) -> str:
    text = f"{event.stream_version:>8}  {event.event_time}  {event.event_type:<22} {event.node_name or ''}"
    return readable(text.rstrip())


def _print_fields(document: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        table(None, ("field", "value"), [(name, value) for name, value in document.items() if value is not None])
