"""noetl validate: what is wrong with a document, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Collection

import click

from noetl.cli.diagnostics import FORMATS, Checked, show
from noetl.cli.documents import find_files, read_document
from noetl.cli.exits import OK, USAGE
from noetl.cli.output import note
from noetl.playbook.parse import parse
from noetl.playbook.problems import Problem

__all__ = ["command"]

_UNKNOWN_KIND = "NTL-402"


@click.command(epilog="Example: noetl validate playbooks/ --format github")
@click.argument("files", metavar="FILE|DIR...", nargs=-1, required=True)
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--strict", is_flag=True, help="Let warnings fail, too.")
def command(files: tuple[str, ...], form: str, as_json: bool, strict: bool) -> int:
    """Check playbooks and subscriptions: files, or every *.yaml and *.yml below a directory; - is standard input.

    All problems of a file come in one go, each with its line, its column and a fix. Exit code 2 means that a
    document is not valid; warnings alone do not fail.
    """
    checked = [_check(file) for file in find_files(files)]
    show(checked, "json" if as_json else form)
    errors = sum(problem.is_error for one in checked for problem in one.problems)
    warnings = sum(len(one.problems) for one in checked) - errors
    if form == "text" and not as_json:
        note(_summary(len(checked), errors, warnings))
    return USAGE if errors or (strict and warnings) else OK


def _check(file: str) -> Checked:
    name, text = read_document(file)
    if isinstance(text, Problem):
        return Checked(name, (), (text,))
    problems = parse(text, name).problems
    if any(problem.code == _UNKNOWN_KIND for problem in problems):
        problems = parse(text, name, kinds=_user_kinds()).problems
    return Checked(name, text.splitlines(), problems)


def _user_kinds() -> Collection[str]:
    """Kinds that installed packages bring. Looking for them takes time, so only a kind that nobody knows makes us."""
    from noetl.tools.registry import Registry

    return Registry().user_kinds()


def _summary(files: int, errors: int, warnings: int) -> str:
    if not errors and not warnings:
        return f"{_count(files, 'file')}, no problems"
    return f"{_count(files, 'file')}: {_count(errors, 'error')}, {_count(warnings, 'warning')}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
