"""noetl context: the servers a person works with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import msgspec

from noetl.cli.contexts import LOCAL, RUNTIMES, Context, Contexts, contexts_file, runtime_of
from noetl.cli.output import note, print_json, table

__all__ = ["command"]

_as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
_runtime = click.Choice(RUNTIMES)


@click.group()
def command() -> None:
    """Name the servers you work with, and say which one is meant when a command does not.

    Contexts are kept in ~/.config/noetl/contexts.toml. A token never is: a context says which variable or file has it.
    """


@command.command(epilog="Example: noetl context add prod --url https://noetl.example.org --token-env NOETL_TOKEN")
@click.argument("name")
@click.option("--url", required=True, metavar="URL", help="Address of the server.")
@click.option("--token-env", metavar="VAR", help="The environment variable that has the token.")
@click.option("--token-file", metavar="FILE", help="The file that has the token; nobody else may read it.")
@click.option(
    "--runtime", type=_runtime, default="auto", show_default=True, help="Where playbooks run in this context."
)
@click.option("--replace", is_flag=True, help="Change a context that is there.")
@_as_json
def add(
    name: str, url: str, token_env: str | None, token_file: str | None, runtime: str, replace: bool, as_json: bool
) -> None:
    """Add a server. The first one becomes the current context."""
    if token_env is not None and token_file is not None:
        raise click.UsageError("--token-env and --token-file exclude each other")
    file = None if token_file is None else str(Path(token_file).expanduser().absolute())
    context = Context(url=url.rstrip("/"), runtime=runtime_of(runtime), token_env=token_env, token_file=file)
    contexts = _load()
    contexts.add(name, context, replace=replace)
    _save(contexts)
    _tell(contexts, name, as_json)


@command.command("list", epilog="Example: noetl context list")
@_as_json
def list_(as_json: bool) -> None:
    """List the contexts."""
    contexts = _load()
    documents = [_document(contexts, name) for name in sorted(contexts.contexts)]
    if as_json:
        print_json({"current": contexts.current or LOCAL, "contexts": documents})
    elif not documents:
        note("No contexts yet: noetl context add NAME --url URL")
    else:
        rows = [
            ("*" if one["current"] else "", one["name"], one["url"], one["runtime"], one["token"]) for one in documents
        ]
        table(None, ("", "context", "url", "runtime", "token"), rows)


@command.command(epilog="Example: noetl context use prod")
@click.argument("name")
@_as_json
def use(name: str, as_json: bool) -> None:
    """Make NAME the current context; `local` is this machine's home."""
    contexts = _load()
    if name != LOCAL:
        contexts.find(name)
    contexts.current = None if name == LOCAL else name
    _save(contexts)
    _tell(contexts, name, as_json)


@command.command(epilog="Example: noetl context current --json")
@_as_json
def current(as_json: bool) -> None:
    """Show the current context."""
    contexts = _load()
    _tell(contexts, contexts.current or LOCAL, as_json)


@command.command("set-runtime", epilog="Example: noetl context set-runtime distributed --context prod")
@click.argument("runtime", type=_runtime)
@click.option("--context", "name", metavar="NAME", help="The context to change; the current one by default.")
@_as_json
def set_runtime(runtime: str, name: str | None, as_json: bool) -> None:
    """Say where playbooks run in a context: here, on its server, or as `noetl run` finds (auto)."""
    contexts = _load()
    name = name or contexts.current or LOCAL
    context = contexts.find(name)
    contexts.contexts[name] = msgspec.structs.replace(context, runtime=runtime_of(runtime))
    _save(contexts)
    _tell(contexts, name, as_json)


@command.command(epilog="Example: noetl context delete prod")
@click.argument("name")
@_as_json
def delete(name: str, as_json: bool) -> None:
    """Forget a context. The server does not notice."""
    contexts = _load()
    contexts.find(name)
    del contexts.contexts[name]
    if contexts.current == name:
        contexts.current = None
    _save(contexts)
    if as_json:
        print_json({"deleted": name, "current": contexts.current or LOCAL})
    else:
        note(f"deleted {name}; the current context is {contexts.current or LOCAL}")


def _load() -> Contexts:
    return Contexts.load(contexts_file(os.environ))


def _save(contexts: Contexts) -> None:
    contexts.save(contexts_file(os.environ))


def _tell(contexts: Contexts, name: str, as_json: bool) -> None:
    document = _document(contexts, name)
    if as_json:
        print_json(document)
    else:
        click.echo("  ".join(str(document[field]) for field in ("name", "url", "runtime") if document[field]))


def _document(contexts: Contexts, name: str) -> dict[str, Any]:
    """A context for eyes and scripts: where its token is, never the token."""
    if name == LOCAL:
        return {"name": LOCAL, "url": None, "runtime": "local", "token": None, "current": contexts.current is None}
    context = contexts.find(name)
    token = f"${context.token_env}" if context.token_env else context.token_file
    return {
        "name": name,
        "url": context.url,
        "runtime": context.runtime,
        "token": token,
        "current": contexts.current == name,
    }
