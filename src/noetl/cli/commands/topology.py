"""noetl topology: which workers there are, and where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from noetl.cli.options import common, home_of, run_async, settings_of
from noetl.cli.output import note, print_json, table
from noetl.cli.remote import context_option, target_of, topology_on

__all__ = ["command"]


@click.command(epilog="Example: noetl topology --context production")
@context_option
@common
def command(context: str | None, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Show the workers of an installation by region, zone and node, with their pools and labels.

    A worker says where it is by its settings [place], and is shown for 90 seconds after it was last heard of.
    """
    if (target := target_of(context, home)) is not None:
        return topology_on(target, lambda found: _show(found, as_json))
    return run_async(_topology(home, tenant, as_json))


async def _topology(home: Path | None, tenant: str | None, as_json: bool) -> None:
    import msgspec

    from noetl.runtime.remote.roster import Roster
    from noetl.runtime.wiring import open_embedded

    async with open_embedded(home_of(home), settings_of(tenant)) as embedded:
        found = await Roster(embedded.kv, embedded.clock).topology()
    _show(msgspec.to_builtins(found), as_json)


def _show(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    rows = [
        (region, zone, node, one["worker_id"], ", ".join(one["pools"]), _labels(one["labels"]), one["seen_at"])
        for region, zones in sorted(found["regions"].items())
        for zone, nodes in sorted(zones.items())
        for node, workers in sorted(nodes.items())
        for one in workers
    ]
    if not rows:
        note("No workers are registered.")
        return
    table(None, ("region", "zone", "node", "worker", "pools", "labels", "seen"), rows)


def _labels(labels: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(labels.items()))
