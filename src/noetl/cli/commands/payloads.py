"""noetl payloads: the stored bytes as a whole."""

from __future__ import annotations

from pathlib import Path

import click

from noetl.cli.options import common, home_of, run_async, settings_of
from noetl.cli.output import note, print_json

__all__ = ["command"]


@click.group("payloads", epilog="Example: noetl payloads encrypt")
def command() -> None:
    """Look after stored payloads as a whole."""


@command.command("encrypt", epilog="Example: noetl payloads encrypt --rotate")
@click.option("--rotate", is_flag=True, help="Make a new key first.")
@click.option("--retire", is_flag=True, help="Forget the older keys at the end; while nothing else uses the store.")
@common
def encrypt(rotate: bool, retire: bool, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Encrypt what was stored before payloads.encrypt was on, and what is encrypted with an older key.

    Killed at any moment, everything still opens, and running it again finishes the work.
    """
    return run_async(_encrypt(rotate, retire, home, tenant, as_json))


async def _encrypt(rotate: bool, retire: bool, home: Path | None, tenant: str | None, as_json: bool) -> None:
    from noetl.runtime.encryption import encrypt_all
    from noetl.runtime.stores import open_objects

    objects = await open_objects(home_of(home), settings_of(tenant))
    done = await encrypt_all(objects, rotate=rotate, retire=retire)
    if as_json:
        print_json(done)
    else:
        note(f"{done.encrypted} of {done.objects} objects were encrypted, all are with key {done.key_id} now")
