"""From what a person gives to a credential: options, files, standard input, questions. No message repeats a value."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import msgspec

from noetl.cli.output import note
from noetl.errors import InvalidInput, NotFound
from noetl.kernel.event import Json
from noetl.playbook.problems import Report
from noetl.playbook.source import read
from noetl.ports.credentials import Credential
from noetl.tools.secrets.types import TYPES, Field, is_secret, missing_fields

__all__ = ["Given", "complete", "parse_data", "read_file", "read_text"]

_DOCUMENT = frozenset({"name", "type", "description", "tags", "data"})


class Given(msgspec.Struct, kw_only=True):
    """What is known of a credential so far."""

    name: str
    type: str | None = None
    description: str = ""
    tags: tuple[str, ...] = ()
    data: Json = {}

    def merge(self, document: Json, source: str) -> None:
        """Take in a file: the data alone, or a whole credential. What was said before counts."""
        if not (isinstance(document.get("data"), dict) and document.keys() <= _DOCUMENT):
            self.data = {**document, **self.data}
            return
        for field, known in (("name", self.name), ("type", self.type)):
            said = document.get(field)
            if known and said and said != known:
                raise InvalidInput(f"{source} is about {field} '{said}', the command line says '{known}'")
        self.type = self.type or document.get("type")
        self.description = self.description or str(document.get("description") or "")
        self.tags = self.tags or tuple(str(tag) for tag in document.get("tags") or ())
        self.data = {**document["data"], **self.data}


def parse_data(options: Iterable[str]) -> Json:
    """`k=v` options. A secret among them is taken, with a word of warning."""
    data: Json = {}
    for number, option in enumerate(options, start=1):
        name, sign, value = option.partition("=")
        if not sign or not name.strip():
            raise InvalidInput(f"--data number {number} is not of the form NAME=VALUE")
        data[name.strip()] = value
    secret = [name for name, value in data.items() if is_secret(name, value)]
    if secret:
        note(
            f"warning: {', '.join(secret)} on the command line can be seen in your shell's history and by others in "
            "the list of processes; give secrets with --prompt, --stdin or --file instead"
        )
    return data


def read_file(path: Path) -> Json:
    """The mapping in a JSON or YAML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} is not UTF-8 text") from None
    document = _parse(text, str(path))
    if not isinstance(document, dict):
        raise InvalidInput(f"{path} does not hold a mapping of fields", hint='write {"field": "value"} or field: value')
    return document


def read_text(text: str, kind: str | None, data: Json) -> Json:
    """Standard input: a mapping, or the bare value of the one field that is missing."""
    missing = missing_fields(kind, data) if kind else []
    try:
        document = _parse(text, "standard input")
    except InvalidInput:
        if len(missing) != 1:
            raise
        document = None
    if isinstance(document, dict):
        return document
    value = text.removesuffix("\n").removesuffix("\r")
    if len(missing) == 1 and value:
        return {missing[0].name: value}
    raise InvalidInput(
        "standard input does not hold a mapping of fields",
        hint="send JSON or YAML; where one field is missing, as for types secret and bearer, its bare value is enough",
    )


def complete(given: Given, *, ask: bool) -> Credential:
    """The credential, after asking for what is missing where somebody can be asked."""
    if not given.type:
        raise InvalidInput("the credential has no type", hint=f"add --type, such as {', '.join(list(TYPES)[:6])}")
    if given.type not in TYPES and (close := difflib.get_close_matches(given.type, TYPES, n=1)):
        note(f"note: type '{given.type}' is not one we know, it is kept as it is; did you mean '{close[0]}'?")
    needed = missing_fields(given.type, given.data)
    terminal = sys.stdin.isatty()
    if ask and not terminal:
        raise InvalidInput("--prompt needs a terminal", hint="use --stdin or --file in scripts")
    if ask or (terminal and (needed or not given.data)):
        given.data = {**given.data, **_ask(given.type, given.data)}
    return Credential(name=given.name, type=given.type, description=given.description, tags=given.tags, data=given.data)


def _ask(kind: str, data: Json) -> Json:
    answers: Json = {}
    for field in missing_fields(kind, data, optional=True):
        if field.required or is_secret(field.name):
            answer = _question(field)
            if answer:
                answers[field.name] = answer
    return answers


def _question(field: Field) -> str:
    hidden = is_secret(field.name)
    text = field.name if field.required else f"{field.name} (empty for none)"
    answer: str = click.prompt(
        text, hide_input=hidden, err=True, default=None if field.required else "", show_default=False
    )
    return answer


def _parse(text: str, source: str) -> Any:
    if source.endswith(".json"):
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            raise InvalidInput(f"{source} is not valid JSON") from None
    report = Report(source)
    documents = read(text, report)
    if report.errors or len(documents) != 1:
        first = next(iter(report.problems()), None)
        where = f", line {first.line}, column {first.column}" if first else ""
        raise InvalidInput(f"{source} is not one document of JSON or YAML{where}")
    return documents[0].data()
