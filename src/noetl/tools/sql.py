"""What the SQL kinds share: which field holds the text, and where one statement ends and the next begins.

Nothing here knows a database. The splitter reads quotes and comments as Postgres does (DSL 9.3), because a
semicolon inside them must not cut a statement in two.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import ChainMap
from collections.abc import Iterator, Mapping
from typing import Any

from noetl.kernel.event import Json
from noetl.tools.base import Call, Outcome, Rendering
from noetl.tools.values import BadField, Refused

__all__ = [
    "SQL_FIELDS",
    "SQL_RENDERING",
    "place_of",
    "refuse_transaction_words",
    "result_of",
    "split",
    "statements_of",
    "transaction_word",
]

SQL_FIELDS = (
    "script", "command_b64", "commands_b64", "query_b64",
    "query", "queries", "command", "commands", "cmd", "cmds",
)  # fmt: skip
"""Where the text may stand. The first field that is there is used."""

SQL_RENDERING: dict[str, Rendering] = {name: "strict" for name in SQL_FIELDS if not name.endswith("_b64")}

_QUOTED = r"""
      (?<![\w$])[eE]' (?: [^'\\] | \\. | '' )*+ (?: '|\Z )
    | ' [^']*+ (?: '|\Z )
    | " [^"]*+ (?: "|\Z )
    | (?<![\w$]) (?P<tag> \$ (?: [^\W\d]\w*+ )? \$ ) .*? (?: (?P=tag)|\Z )
"""
_TOKEN = re.compile(
    rf"(?P<quoted>{_QUOTED}) | (?P<line>--[^\n]*+) | (?P<block>/\*) | (?P<end>;)", re.VERBOSE | re.DOTALL
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_TRANSACTION = re.compile(
    r"\s* (BEGIN|START\s+TRANSACTION|COMMIT|END|ABORT|PREPARE\s+TRANSACTION|ROLLBACK (?! .* \bTO\b )) \b",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)


def split(text: str) -> list[str]:
    """The statements of a text, without the comments around and between their words."""
    is_one = ";" not in text and "--" not in text and "/*" not in text  # whatever is in quotes
    if is_one:
        return [alone] if (alone := text.strip()) else []
    found: list[str] = []
    pieces: list[str] = []
    for piece in _pieces(text):
        if piece is None:
            found.append("".join(pieces).strip())
            pieces.clear()
        else:
            pieces.append(piece)
    found.append("".join(pieces).strip())
    return [statement for statement in found if statement]


def _pieces(text: str) -> Iterator[str | None]:
    """Text that counts; None where a statement ends."""
    position = 0
    while token := _TOKEN.search(text, position):
        yield text[position : token.start()]
        position = token.end()
        if token["quoted"] is not None:
            yield token["quoted"]
        elif token["end"] is not None:
            yield None
        elif token["line"] is not None:
            yield " "
        elif (after := _after_comment(text, token.end())) is not None:
            position = after
            yield " "
        else:
            # A comment that never ends is left for the database to refuse. Without it a shorter statement
            # would run than the one that was written: DELETE FROM t /* WHERE id = 1
            yield text[token.start() :]
            return
    yield text[position:]


def _after_comment(text: str, position: int) -> int | None:
    """Where a block comment ends whose opening is behind us. Comments nest."""
    depth = 1
    while depth:
        edge = _COMMENT_EDGE.search(text, position)
        if edge is None:
            return None
        depth += 1 if edge[0] == "/*" else -1
        position = edge.end()
    return position


async def statements_of(call: Call) -> list[str]:
    """The statements of a task, in order. Raises BadField when there are none."""
    name, value = _written(call.fields)
    if name == "script":
        value = await _loaded(call)
    if type(value) is str and name in SQL_RENDERING:
        found = split(value)
    else:
        found = [statement for text in _texts(name, value) for statement in split(text)]
    if not found:
        raise BadField(f"{name} holds no statement", code="FIELD_MISSING")
    return found


def _written(fields: Json) -> tuple[str, Any]:
    for name in SQL_FIELDS:
        if (value := fields.get(name)) is not None:
            return name, value
    raise BadField(f"there is no SQL; give one of {', '.join(SQL_FIELDS)}", code="FIELD_MISSING")


async def _loaded(call: Call) -> Any:
    """The text of a script. What comes from elsewhere is rendered as strictly as SQL in the playbook."""
    script = call.fields["script"]
    if not isinstance(script, Mapping):
        return script
    source = script.get("source")
    if isinstance(source, Mapping) and source.get("type", "inline") == "inline" and "code" in source:
        return source["code"]
    from noetl.playbook.templates import TemplateError, render_strict
    from noetl.tools.scripts import load

    text = await load(script, call)
    if isinstance(text, Outcome):
        raise Refused(text)
    scopes = [scope for name in ("ctx", "workload") if isinstance(scope := call.context.get(name), dict)]
    try:
        return str(render_strict(text, ChainMap({"input": call.input}, call.input, call.context, *scopes)))
    except TemplateError as error:
        raise BadField(f"the script could not be rendered: {error}", code=error.code) from None


def _texts(name: str, value: Any) -> Iterator[str]:
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, str):
            raise BadField(f"{name} must be text or a list of texts, not {_shape(item)}")
        yield _decoded(name, item) if name.endswith("_b64") else item


def _decoded(name: str, text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode("utf-8")
    except (binascii.Error, ValueError) as error:
        raise BadField(f"{name} is not base64 of UTF-8 text: {error}", kind="parse") from None


def _shape(value: Any) -> str:
    return {dict: "a mapping", list: "a list", bool: "true or false", type(None): "nothing"}.get(
        type(value), "a number"
    )


def transaction_word(statement: str) -> str | None:
    """BEGIN, COMMIT or another word that opens or ends a transaction, if the statement is one."""
    found = _TRANSACTION.match(statement)
    return " ".join(found[1].upper().split()) if found else None


def refuse_transaction_words(statements: list[str]) -> None:
    """For statements that run in one transaction, which none of them may end. Raises BadField."""
    for index, statement in enumerate(statements):
        if word := transaction_word(statement):
            raise BadField(
                f"{place_of(index, statements)} is {word}, but the statements already run in one transaction; "
                "leave it out or set autocommit: true",
                code="AUTOCOMMIT_NEEDED",
            )


def place_of(index: int, statements: list[str]) -> str:
    """How a message speaks of one statement: counted as people do, and with its name in the result."""
    return f"statement {index + 1} of {len(statements)} (command_{index})"


def result_of(answers: list[Json]) -> Json:
    """The last statement's answer at the top, and every answer under its own name."""
    commands = {f"command_{index}": answer for index, answer in enumerate(answers)}
    return {**answers[-1], "statement_count": len(answers), **commands}
