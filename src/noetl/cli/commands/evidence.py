"""noetl evidence: a directory that proves what a run was, and the check of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from noetl.cli.exits import MISMATCH, OK
from noetl.cli.options import common, find_root, home_of, run_async, settings_of
from noetl.cli.output import note, print_json, readable, with_text_ids

if TYPE_CHECKING:
    from noetl.replay.evidence import Checked, Given

__all__ = ["command"]

_MOST_PROBLEMS = 50


class _GiveByDefault(click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`noetl evidence ID --out DIR` gives some."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["give", *args]
        return super().parse_args(ctx, args)


@click.group("evidence", cls=_GiveByDefault)
def command() -> None:
    """Give evidence of a run, and check it anywhere. With an ID it gives some."""


@command.command("give", epilog="Example: noetl evidence 318485246779594112 --out evidence")
@click.argument("execution", metavar="ID")
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="A directory to make.")
@click.option("--sign", is_flag=True, help="Sign it with the key that archives are signed with.")
@common
def give(execution: str, out: Path, sign: bool, home: Path | None, tenant: str | None, as_json: bool) -> int | None:
    """Write down what the log of an execution says, what its live rows say, and whether both and its payloads hold.

    The directory proves itself: `noetl evidence check DIR` verifies all of it again, anywhere, without a database. It
    appears whole or not at all, and one that is there is never touched. Exit code 4 if something does not hold; the
    evidence is written then, too, and says what.
    """
    return run_async(_give(execution, out, sign, home, tenant, as_json))


@command.command("check", epilog="Example: noetl evidence check evidence --json")
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--trusted", metavar="KEY", help="The public key that must have signed it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def check(directory: Path, trusted: str | None, as_json: bool) -> int:
    """Verify evidence again: every file, field, row, checksum and step. Exit code 4 names all that does not hold.

    Needs nothing but the directory: no database, no home, no network. The answer is the same wherever it lies.
    """
    from noetl.replay.evidence.check import check_evidence

    key = None
    if trusted is not None:
        from noetl.tools.secrets.signing import read_public_key

        key = read_public_key(trusted)
    checked = check_evidence(directory, trusted=key)
    if as_json:
        print_json(with_text_ids(msgspec.to_builtins(checked)))
    else:
        _show_check(checked)
    return OK if checked.ok else MISMATCH


async def _give(execution: str, out: Path, sign: bool, home: Path | None, tenant: str | None, as_json: bool) -> int:
    from noetl.runtime.evidence import evidence_of, signer_of
    from noetl.runtime.wiring import open_embedded

    settings, place = settings_of(tenant), home_of(home)
    async with open_embedded(place, settings, examine=True) as embedded:
        root = await find_root(embedded, execution, settings)
        await embedded.projector.catch_up(snapshots=False)  # a run that was killed had no time to
        signer = await signer_of(place) if sign else None
        given = await evidence_of(embedded).write(root, out, signer=signer)
    if as_json:
        print_json(with_text_ids({**msgspec.to_builtins(given), "ok": given.ok, "directory": str(out)}))
    else:
        _show_given(given, out)
    return OK if given.ok else MISMATCH


def _show_given(given: Given, out: Path) -> None:
    click.echo(f"{_mark(given.ok)}  execution/{given.scope.execution_id}  {given.events} events", nl=False)
    click.echo(f", {given.rows} rows, {given.payloads} payloads")
    click.echo(f"  state      {given.checksum}")
    click.echo(f"  index      {given.index_sha256}")
    click.echo(f"  signed by  {given.signed_by or 'nobody'}")
    for holds, what in (
        (given.chain, "the log is not what was written"),
        (given.parity, "the live rows are not what the log says"),
        (given.resolved, "payloads are missing or damaged"),
    ):
        if not holds:
            click.secho(f"    {what}", fg="red")
    note(f"Evidence is in {out}; check it with noetl evidence check {out}")


def _show_check(checked: Checked) -> None:
    scope = f"execution/{checked.scope.execution_id}" if checked.scope else "evidence"
    click.echo(f"{_mark(checked.ok)}  {scope}", nl=False)
    click.echo(f"  {checked.events} events, {checked.rows} rows, {checked.payloads} payloads" if checked.ok else "")
    for problem in checked.problems[:_MOST_PROBLEMS]:
        click.secho(f"    {readable(str(problem))}", fg="red")
    if len(checked.problems) > _MOST_PROBLEMS:
        click.echo(f"    and more: {len(checked.problems) - _MOST_PROBLEMS}, all with --json")
    if checked.ok:
        click.echo(f"  state      {checked.checksum}")
        click.echo(f"  index      {checked.index_sha256}")
        click.echo(f"  signed by  {checked.signed_by or 'nobody'}")


def _mark(ok: bool) -> str:
    return click.style("ok", fg="green") if ok else click.style("MISMATCH", fg="red", bold=True)
