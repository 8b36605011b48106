"""noetl schema: what an editor needs to complete and check documents."""

from __future__ import annotations

import click
import msgspec

__all__ = ["command"]


@click.command(epilog="Example: noetl schema > playbook.schema.json")
@click.argument("kind", type=click.Choice(["playbook", "subscription"]), default="playbook")
@click.option("--json", "_as_json", is_flag=True, help="Print one JSON document (it always is).")
def command(kind: str, _as_json: bool) -> None:
    """Print the JSON Schema (2020-12) of a kind of document.

    In VS Code with the YAML extension, put this on the first line of a playbook:
    # yaml-language-server: $schema=playbook.schema.json
    """
    from noetl.playbook import schema

    document = schema.playbook() if kind == "playbook" else schema.subscription()
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
