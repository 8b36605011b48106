"""noetl graph: a playbook as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from noetl.cli.documents import read_document
from noetl.cli.output import note
from noetl.errors import InvalidDocument, InvalidInput, NotFound

if TYPE_CHECKING:
    from noetl.playbook.document import Playbook

__all__ = ["command"]


@click.command(epilog="Example: noetl graph orders.yaml --format svg --out orders.svg")
@click.argument("file", metavar="FILE")
@click.option("--format", "form", type=click.Choice(["mermaid", "svg"]), help="[the ending of --out, else mermaid]")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="File to write  [standard output]"
)
@click.option("--path", "path", metavar="PATH", help="Which playbook, where the file holds several.")
def command(file: str, form: str | None, out: Path | None, path: str | None) -> None:
    """Draw a playbook: steps, arcs with their conditions, loops, data stages, forks and joins.

    Mermaid text goes into Markdown pages; an SVG stands alone and follows the reader's light or dark theme.
    """
    from noetl.playbook import diagram

    playbook = _load(file, path)
    chosen = form or ("svg" if out is not None and out.suffix.lower() == ".svg" else "mermaid")
    text = diagram.svg(playbook) if chosen == "svg" else diagram.mermaid(playbook)
    if out is None:
        click.echo(text, nl=False)
        return
    out.write_text(text, encoding="utf-8")
    note(f"{playbook.path}: {len(playbook.steps)} steps drawn to {out}")


def _load(file: str, path: str | None) -> Playbook:
    from noetl.playbook.document import Playbook
    from noetl.playbook.parse import parse

    if file != "-" and not Path(file).is_file():
        raise NotFound(f"there is no file {file}")
    name, text = read_document(file)
    if not isinstance(text, str):
        raise InvalidDocument([text])
    parsed = parse(text, name)
    if not parsed.ok:
        raise InvalidDocument([problem for problem in parsed.problems if problem.is_error])
    found = [document for document in parsed.documents if isinstance(document, Playbook)]
    chosen = [document for document in found if path is None or document.path == path.strip("/")]
    if len(chosen) != 1:
        names = ", ".join(document.path for document in found) or "none"
        raise InvalidInput(f"{name} has these playbooks: {names}", hint="choose one with --path")
    return chosen[0]
