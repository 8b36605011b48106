"""What a shell completes: files, step names, executions, registered paths.

Which of these a parameter takes is read from how it calls itself in the help, so a new command completes without
knowing of this. Nothing here may disturb whoever is typing: what cannot be found out quickly is not offered.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem
from click.types import StringParamType

from noetl.cli.app import VARIABLE

if TYPE_CHECKING:
    from noetl.runtime.wiring import Embedded
    from noetl.settings import Settings

__all__ = ["SHELLS", "prepare", "script"]

SHELLS = ("bash", "zsh", "fish")
_MOST = 30
_PATIENCE = 2.0

Items = list[CompletionItem[str]]


def script(shell: str, cli: click.Command) -> str:
    """The script that makes a shell ask."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    return found(cli, {}, "noetl", VARIABLE).source()


def prepare(command: click.Command) -> click.Command:
    """Let the parameters of a command offer what they take."""
    for parameter in command.params:
        offer = _offer_of(parameter)
        if offer is not None:
            parameter.type = _Offering(offer)
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            prepare(inner)
    return command


class _Offering(StringParamType):
    def __init__(self, offer: Callable[[click.Context, str], Items]) -> None:
        self._offer = offer

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        with contextlib.suppress(Exception):  # a completion that fails is one that is not offered
            return self._offer(ctx, incomplete)
        return []


def _offer_of(parameter: click.Parameter) -> Callable[[click.Context, str], Items] | None:
    if parameter.name == "types":
        return _event_types
    if parameter.name == "step" and parameter.metavar is None:
        return _steps
    return _OFFERS.get(parameter.metavar or "")


def _files(ctx: click.Context, incomplete: str) -> Items:
    return [CompletionItem(incomplete, type="file")]


def _references(ctx: click.Context, incomplete: str) -> Items:
    """Files; registered paths where no file begins like this."""
    begun = Path(incomplete)
    folder = begun if incomplete.endswith("/") or not incomplete else begun.parent
    last = "" if incomplete.endswith("/") else begun.name
    if folder.is_dir() and any(entry.name.startswith(last) for entry in folder.iterdir()):
        return _files(ctx, incomplete)
    return _registered(ctx, incomplete)


def _event_types(ctx: click.Context, incomplete: str) -> Items:
    from noetl.kernel.vocabulary import KNOWN_TYPES

    return _matching(dict.fromkeys(sorted(KNOWN_TYPES), ""), incomplete)


def _executions(ctx: click.Context, incomplete: str) -> Items:
    return _matching(_ask(ctx, _recent), incomplete)


def _registered(ctx: click.Context, incomplete: str) -> Items:
    async def ask(embedded: Embedded, settings: Settings) -> Mapping[str, str]:
        page = await embedded.catalog.list(settings.tenant.id, prefix=incomplete, limit=_MOST)
        return {entry.path: f"version {entry.version}" for entry in page.entries}

    return _matching(_ask(ctx, ask), incomplete)


def _steps(ctx: click.Context, incomplete: str) -> Items:
    reference, execution = _argument(ctx, "ref"), _argument(ctx, "execution")
    if isinstance(reference, str) and Path(reference).is_file():
        return _matching(_steps_in(Path(reference).read_text(encoding="utf-8-sig")), incomplete)

    async def ask(embedded: Embedded, settings: Settings) -> Mapping[str, str]:
        if isinstance(execution, str):
            return _steps_in(await _document_of(embedded, settings, int(execution)))
        path = str(reference).removeprefix("catalog://").partition("@")[0]
        return _steps_in((await embedded.catalog.get(settings.tenant.id, path)).content)

    return _matching(_ask(ctx, ask), incomplete)


_OFFERS: Mapping[str, Callable[[click.Context, str], Items]] = {
    "ID": _executions,
    "STEP": _steps,
    "FILE|PATH": _references,
    "FILE|DIR...": _files,
    "PATH[@V]": _registered,
    "PATH": _registered,
}


def _matching(found: Mapping[str, str], incomplete: str) -> Items:
    return [CompletionItem(value, help=about or None) for value, about in found.items() if value.startswith(incomplete)]


def _ask(ctx: click.Context, question: Callable[[Embedded, Settings], Any]) -> Mapping[str, str]:
    """What the home knows, as values and a word about each; nothing when there is no home, or it is too busy."""
    from noetl.cli.options import home_of, settings_of

    home, settings = home_of(_path(ctx.params.get("home"))), settings_of(ctx.params.get("tenant"))
    if not home.has_ledger():
        return {}

    async def ask() -> Mapping[str, str]:
        from noetl.runtime.wiring import open_embedded

        async with asyncio.timeout(_PATIENCE), open_embedded(home, settings) as embedded:
            found: Mapping[str, str] = await question(embedded, settings)
            return found

    return asyncio.run(ask())


async def _recent(embedded: Embedded, settings: Settings) -> Mapping[str, str]:
    """The latest executions, as far as the projections know: catching up could take long."""
    import msgspec

    page = await embedded.projections.query("execution", tenant_id=settings.tenant.id, limit=_MOST)
    rows = [(row.root.stream_id.split("/")[1], msgspec.json.decode(row.row)) for row in page.rows]
    return {execution: f"{row.get('path') or ''} {row.get('status') or ''}".strip() for execution, row in rows}


async def _document_of(embedded: Embedded, settings: Settings, execution_id: int) -> str:
    """The playbook that an execution runs; its first event names it."""
    from noetl.kernel.event import PayloadRef
    from noetl.kernel.streams import execution_stream
    from noetl.ports.ledger import Stream

    (first,) = await embedded.ledger.read(Stream(settings.tenant.id, execution_stream(execution_id)), limit=1)
    said, event = first.event.payload["document"], first.event
    uri = f"noetl://{event.tenant_id}/{event.project_id}/payloads/sha256/{said['sha256']}"
    ref = PayloadRef(uri=uri, sha256=said["sha256"], media_type="application/yaml", bytes=said["bytes"])
    return (await embedded.payloads.fetch(ref)).decode()


def _steps_in(text: str) -> Mapping[str, str]:
    from noetl.playbook.document import Playbook
    from noetl.playbook.parse import parse

    playbooks = [document for document in parse(text, "<file>").documents if isinstance(document, Playbook)]
    steps: Iterable[Any] = playbooks[-1].steps.values() if playbooks else ()
    return {step.name: step.desc.partition("\n")[0] for step in steps}


def _argument(ctx: click.Context, name: str) -> str | None:
    """An argument that was given before. With an option that still lacks its value, click has not assigned any."""
    value = ctx.params.get(name)
    if value is None and ctx.args and any(isinstance(p, click.Argument) and p.name == name for p in ctx.command.params):
        value = ctx.args[0]
    return value if isinstance(value, str) else None


def _path(value: Any) -> Path | None:
    return Path(value) if value else None
