"""Problems of documents, in the form that a person, a script, a code host or an editor wants them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import click
import msgspec

from noetl.cli.output import print_json, readable
from noetl.playbook.problems import Problem

__all__ = ["FORMATS", "Checked", "cells", "show", "window"]

FORMATS = ("text", "json", "sarif", "github")

_WIDEST = 140
_COLOURS = {"error": "red", "warning": "yellow"}
_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"


class Checked(NamedTuple):
    """A file, its lines, and what was found in it."""

    file: str
    lines: Sequence[str]
    problems: Sequence[Problem]

    @property
    def ok(self) -> bool:
        """Whether nothing in it is an error."""
        return not any(problem.is_error for problem in self.problems)


def show(checked: Sequence[Checked], form: str) -> None:
    """Print what was found on standard output."""
    if form == "json":
        print_json({"files": [_file(one) for one in checked]})
    elif form == "sarif":
        print_json(_sarif(checked))
    elif form == "github":
        for one in checked:
            for problem in one.problems:
                click.echo(_annotation(problem))
    else:
        for one in checked:
            for problem in one.problems:
                _show(problem, one.lines)


def _file(checked: Checked) -> dict[str, Any]:
    problems = [{key: value for key, value in msgspec.to_builtins(one).items() if key != "file"}
                for one in checked.problems]  # fmt: skip
    return {"file": checked.file, "ok": checked.ok, "problems": problems}


# --- For a person -----------------------------------------------------------------------------------------


def _show(problem: Problem, lines: Sequence[str]) -> None:
    """The line that DSL.md 17 prescribes, and below it the source with a mark under the column."""
    click.secho(readable(f"{problem.file}:{problem.line}:{problem.column}: "), bold=True, nl=False)
    click.secho(f"{problem.code} {problem.severity}: ", fg=_COLOURS[problem.severity], bold=True, nl=False)
    click.echo(readable(problem.message), nl=False)
    click.secho(f" (hint: {readable(problem.hint)})", fg="cyan")
    if problem.line <= len(lines):
        text, column = window(lines[problem.line - 1], problem.column)
        number = f"{problem.line:>6} | "
        click.secho(number, dim=True, nl=False)
        click.echo(readable(text))
        click.secho(" " * (len(number) - 2) + "| ", dim=True, nl=False)
        click.secho(" " * cells(readable(text[: column - 1])) + "^", fg=_COLOURS[problem.severity], bold=True)


def window(line: str, column: int) -> tuple[str, int]:
    """A line with its tabs as one space each, cut around the column when it is very long."""
    text = line.replace("\t", " ").rstrip()
    if len(text) <= _WIDEST:
        return text, column
    start = max(0, column - 1 - _WIDEST // 2)
    cut = text[start : start + _WIDEST]
    before, after = ("…" if start else ""), ("…" if start + _WIDEST < len(text) else "")
    return before + cut + after, column - start + len(before)


def cells(text: str) -> int:
    """How many cells of a terminal a text takes."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    narrow = sum(unicodedata.combining(character) != 0 for character in text)
    return len(text) + wide - narrow


# --- For machines -----------------------------------------------------------------------------------------


def _annotation(problem: Problem) -> str:
    """A workflow command of GitHub Actions, which becomes a note beside the line."""
    place = f"file={_property(problem.file)},line={problem.line},col={problem.column},title={problem.code}"
    return f"::{problem.severity} {place}::{_escape(f'{problem.message} (hint: {problem.hint})')}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")


def _sarif(checked: Sequence[Checked]) -> dict[str, Any]:
    from noetl import __version__

    problems = [problem for one in checked for problem in one.problems]
    codes = sorted({problem.code for problem in problems})
    index = {code: number for number, code in enumerate(codes)}
    driver = {"name": "noetl", "version": __version__, "rules": _rules(codes)}
    results = [_result(problem, index) for problem in problems]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": _SARIF, "version": "2.1.0", "runs": [run]}


def _rules(codes: Iterable[str]) -> list[dict[str, Any]]:
    from noetl.playbook.codes import CODES

    return [
        {
            "id": code,
            "shortDescription": {"text": CODES[code].about},
            "defaultConfiguration": {"level": CODES[code].severity},
        }
        for code in codes
    ]


def _result(problem: Problem, index: Mapping[str, int]) -> dict[str, Any]:
    from urllib.parse import quote

    place = {
        "artifactLocation": {"uri": quote(problem.file.replace("\\", "/"))},
        "region": {"startLine": problem.line, "startColumn": problem.column},
    }
    return {
        "ruleId": problem.code,
        "ruleIndex": index[problem.code],
        "level": problem.severity,
        "message": {"text": f"{problem.message} (hint: {problem.hint})"},
        "locations": [{"physicalLocation": place}],
    }
