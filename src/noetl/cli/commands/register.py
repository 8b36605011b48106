"""noetl register: put playbooks into the catalog."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noetl.cli.exits import OK, USAGE
from noetl.cli.options import common, home_of, run_async, settings_of
from noetl.cli.output import note, print_json
from noetl.cli.remote import context_option, register_on, target_of
from noetl.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from noetl.runtime.registration import Readable

__all__ = ["command"]


@click.command(epilog="Example: noetl register playbooks/square.yaml")
@click.argument("file", type=click.Path(path_type=Path))
@context_option
@common
def command(file: Path, context: str | None, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Put the playbooks of FILE into the catalog, here or on a server, each as the next version of its path.

    A file with an error registers nothing.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(f"there is no file {file}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read {file}: {error}") from None
    from noetl.runtime.registration import read_documents
    from noetl.tools.registry import Registry

    readable = read_documents(text, str(file), Registry().user_kinds())
    problems = [str(problem) for problem in readable.problems]
    for problem in problems:
        note(problem)
    if not readable.ok:
        return USAGE

    def show(entries: list[dict[str, Any]]) -> int:
        if as_json:
            print_json({"registered": entries, "problems": problems})
        else:
            for item in entries:
                click.echo(f"{item['path']}  version {item['version']}")
        return OK

    if (target := target_of(context, home)) is not None:
        return register_on(target, text, show)
    return run_async(_register(readable, home, tenant, show))


async def _register(
    readable: Readable, home: Path | None, tenant: str | None, show: Callable[[list[dict[str, Any]]], int]
) -> int:
    from noetl.runtime.registration import register
    from noetl.runtime.wiring import open_embedded

    settings = settings_of(tenant)
    async with open_embedded(home_of(home), settings, create=True) as embedded:
        registered = await register(embedded.catalog, settings.tenant.id, readable)
    return show(
        [
            {"path": entry.path, "version": entry.version, "kind": entry.kind, "sha256": entry.sha256}
            for entry in registered
        ]
    )
