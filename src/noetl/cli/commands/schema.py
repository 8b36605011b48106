"""noetl schema: what an editor needs to complete and check documents."""

from __future__ import annotations

from typing import Any

import click
import msgspec

__all__ = ["command"]

_PREFIX = "evidence-"
_EVIDENCE = tuple(
    _PREFIX + name
    for name in (
        "replay-state", "live-rows", "live-checksums", "parity", "payload-resolution", "manifest", "index", "signature",
    )
)  # fmt: skip


@click.command(epilog="Example: noetl schema > playbook.schema.json")
@click.argument("kind", type=click.Choice(["playbook", "subscription", *_EVIDENCE]), default="playbook")
@click.option("--json", "_as_json", is_flag=True, help="Print one JSON document (it always is).")
def command(kind: str, _as_json: bool) -> None:
    """Print the JSON Schema (2020-12) of a kind of document.

    In VS Code with the YAML extension, put this on the first line of a playbook:
    # yaml-language-server: $schema=playbook.schema.json
    """
    click.echo(msgspec.json.format(msgspec.json.encode(_schema(kind)), indent=2).decode())


def _schema(kind: str) -> dict[str, Any]:
    if kind in _EVIDENCE:
        from noetl.replay.evidence.schema import schema_of

        return schema_of(f"{kind.removeprefix(_PREFIX)}.json")
    from noetl.playbook import schema

    return schema.playbook() if kind == "playbook" else schema.subscription()
