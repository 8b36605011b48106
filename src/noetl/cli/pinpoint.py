"""Where in a playbook's file an error has its cause: the line, and what in it to mark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.playbook.document import pointer

if TYPE_CHECKING:
    from noetl.kernel.event import Json
    from noetl.playbook.document import Playbook, Step, Task

__all__ = ["Place", "find_place"]

_IN_TEMPLATE = re.compile(r" at line (\d+)(?:, column \d+)?: (.+)\Z", re.DOTALL)
_STATEMENT = re.compile(r"statement (\d+) of \d+")
_IN_STATEMENT = re.compile(r" at line (\d+), column (\d+)\Z")
_IN_DUCKDB = re.compile(r"LINE (\d+): ")
_SQL = ("command", "commands", "query", "queries", "cmd", "cmds", "script")
_TIMEOUTS = ("timeout", "timeout_seconds")
_DEFAULT_TIMEOUT = ("executor", "spec", "policy", "defaults", "timeout_s")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the file. The mark goes from `column`, counted from 1, over `width` characters."""

    line: int
    column: int | None = None
    width: int = 1


def find_place(playbook: Playbook, document: str, step: Step, task: Task, error: Json) -> Place:
    """The most exact place that an error tells of, and where the task begins if it tells nothing."""
    source = _Source(playbook, document.splitlines())
    code = str(error.get("code", ""))
    found: Place | None = None
    if code.startswith("TEMPLATE_"):
        found = _in_template(source, step, task, str(error.get("message", "")))
    elif code == "TIMEOUT":
        found = _at_limit(source, step, task, str(error.get("message", "")))
    elif code == "CREDENTIAL_UNAVAILABLE":
        found = source.at(task.at, "auth")
    elif code == "NO_ARC_MATCHED":
        found = source.at(step.at, "next")
    elif code == "PLAYBOOK_NOT_FOUND":
        found = source.at(task.at, "path")
    elif isinstance(error.get("line"), int) and isinstance(task.fields.get("code"), str):
        found = _in_code(source, task, error)
    elif isinstance(error.get("line"), int) and isinstance(task.fields.get("sql"), str):
        found = _in_query(source, task, error)
    elif _STATEMENT.search(str(error.get("message", ""))):
        found = _in_sql(source, task, str(error["message"]))
    return found or source.at(task.at) or Place(line=playbook.position(task.at).line)


class _Source:
    """A document and the lines of its file."""

    def __init__(self, playbook: Playbook, lines: list[str]) -> None:
        self.playbook = playbook
        self.lines = lines

    def line(self, number: int) -> str:
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""

    def at(self, *path: str | int) -> Place | None:
        """The value that stands there, if it was written down there."""
        if pointer(*path) not in self.playbook.positions.places:
            return None
        position = self.playbook.position(*path)
        rest = self.line(position.line)[position.column - 1 :]
        return Place(line=position.line, column=position.column, width=max(1, len(rest.rstrip())))

    def marked(self, number: int, text: str) -> Place:
        """A line with this text in it marked, if it is there."""
        column = self.line(number).find(text) if text else -1
        return Place(line=number) if column < 0 else Place(line=number, column=column + 1, width=len(text))


def _texts(value: Any, *path: str | int) -> Iterator[tuple[str, str]]:
    """Every text in a value, with the pointer to it."""
    if isinstance(value, str):
        yield pointer(*path), value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(inner, *path, key)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _texts(inner, *path, index)


def _in_template(source: _Source, step: Step, task: Task, message: str) -> Place | None:
    """The expression, looked for in everything that is rendered for the task."""
    told = _IN_TEMPLATE.search(message)
    if told is None:
        return None
    line, expression = int(told[1]), told[2]
    candidates = [
        *_texts(task.fields, task.at),
        *_texts(task.auth, task.at, "auth"),
        *_texts(task.input, task.at, "input"),
        *_texts(step.input, step.at, "input"),
        *_texts(step.loop.items if step.loop else None, step.at, "loop", "in"),
    ]
    for where, text in candidates:
        if expression in text:
            return source.marked(source.playbook.line_in(line, where), expression.split("\n")[0])
    return None


def _in_code(source: _Source, task: Task, error: Json) -> Place:
    """The line of the code; its columns too, unless a template has changed the line before it ran."""
    number = source.playbook.line_in(error["line"], task.at, "code")
    written = task.fields["code"].splitlines()
    own = written[error["line"] - 1] if error["line"] <= len(written) else ""
    start, end = error.get("column"), error.get("end_column")
    if not own or "{{" in own or not isinstance(start, int) or not isinstance(end, int):
        return Place(line=number)
    encoded = own.encode()  # Python counts bytes
    return source.marked(number, encoded[start - 1 : end - 1].decode(errors="ignore"))


def _in_query(source: _Source, task: Task, error: Json) -> Place:
    """The place in a query; the line only, where a template may have moved it."""
    number = source.playbook.line_in(error["line"], task.at, "sql")
    lines, column = task.fields["sql"].splitlines(), error.get("column")
    own = lines[error["line"] - 1] if error["line"] <= len(lines) else ""
    if "{{" in own or not isinstance(column, int) or not 0 < column <= len(own):
        return Place(line=number)
    moved = source.line(number).find(own)
    word = re.match(r"\w+|", own[column - 1 :])
    width = max(1, len(word[0]) if word else 1)
    return Place(line=number) if moved < 0 else Place(line=number, column=moved + column, width=width)


def _in_sql(source: _Source, task: Task, message: str) -> Place | None:
    """The line of the statement at which the database stopped, else the statement's first."""
    from noetl.tools.sql import split

    wanted = _STATEMENT.search(message)
    told = _IN_STATEMENT.search(message) or _IN_DUCKDB.search(message)
    if wanted is None:
        return None
    left = int(wanted[1]) - 1
    for name in _SQL:
        for where, text in _texts(task.fields.get(name), task.at, name):
            statements = split(text)
            if left < len(statements):
                return _line_of(source, where, text, statements[left], int(told[1]) if told else 1)
            left -= len(statements)
    return None


def _line_of(source: _Source, where: str, text: str, statement: str, number: int) -> Place | None:
    lines = statement.splitlines()
    wanted = (lines[number - 1] if number <= len(lines) else lines[0]).strip()
    before = text.find(statement)
    first = text.count("\n", 0, before) if before >= 0 else 0
    for offset, line in enumerate(text.splitlines()[first:], start=first + 1):
        if wanted and wanted in line:
            return source.marked(source.playbook.line_in(offset, where), wanted)
    return source.at(where)


def _at_limit(source: _Source, step: Step, task: Task, message: str) -> Place | None:
    """Where the limit was set that was passed."""
    if message.startswith("step "):
        return source.at(step.at, "spec", "timeout")
    own = [source.at(task.at, "spec", "timeout"), *(source.at(task.at, name) for name in _TIMEOUTS)]
    return next((place for place in own if place), None) or source.at(*_DEFAULT_TIMEOUT)
