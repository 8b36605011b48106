"""Questions in SQL: that they only ask, and what is wrong with one in the words of whoever has written it."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from noetl.data.history.tables import TABLES
from noetl.data.session import explain
from noetl.errors import InvalidInput, NoetlError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check", "explained"]

_COMMAND = "org.apache.spark.sql.catalyst.plans.logical.Command"
_RUNS_CODE = re.compile(r"\b(?:reflect|try_reflect|java_method)\(|ScriptTransformation", re.IGNORECASE)
_AT = re.compile(r"\(line (\d+), pos(?:ition)? (\d+)\)")
_CONDITION = re.compile(r"^\[[A-Z_.0-9]+\] ")
_NEAR = 3


def check(spark: SparkSession, query: str) -> None:
    """Raises InvalidInput for anything but one query: statements that change something are refused unseen."""
    if not query.strip():
        raise InvalidInput("there is no query", hint='write one, such as "SELECT count(*) FROM events"')
    with explained(query):
        plan = _parsed(spark, query)
    if _RUNS_CODE.search(plan.toString()):
        raise InvalidInput("a query runs no other code here", hint="do without TRANSFORM, reflect and java_method")
    if not _is_command(spark, plan):
        with contextlib.suppress(Exception):  # the grammar knows best: only a query can stand between parentheses
            _parsed(spark, f"FROM (\n{query}\n) AS asked")
            return
    word = re.sub(r"^(\s|--[^\n]*\n|/\*.*?\*/)+", "", query, flags=re.DOTALL).split(maxsplit=1)[0].upper()
    raise InvalidInput(
        f"only queries are run here, and this is not one: {word} ...",
        hint="begin with SELECT, WITH, FROM or VALUES; noetl sql --tables lists the tables",
    )


def _parsed(spark: SparkSession, query: str) -> Any:
    session: Any = spark
    return session._jsparkSession.sessionState().sqlParser().parsePlan(query)  # noqa: SLF001 - PySpark has no other way


def _is_command(spark: SparkSession, plan: Any) -> bool:
    from py4j.java_gateway import is_instance_of

    return bool(is_instance_of(spark.sparkContext._gateway, plan, _COMMAND))  # noqa: SLF001 - as above


@contextlib.contextmanager
def explained(query: str) -> Iterator[None]:
    """What Spark finds wrong with a query, as an InvalidInput with the place in it and what may have been meant."""
    try:
        yield
    except NoetlError:
        raise
    except Exception as error:
        raise _mistake(error, query) from error


def _mistake(error: Exception, query: str) -> NoetlError:
    condition = _asked(error, "getCondition") or ""
    given = _asked(error, "getMessageParameters") or {}
    said = _CONDITION.sub("", _AT.sub("", explain(error).message).partition("\n== SQL")[0]).strip()
    hint: str | None = None
    if condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
        name = _bare(given.get("relationName", ""))
        said = f"there is no table '{name}'"
        hint = _near(name, list(TABLES)) or f"there are {', '.join(TABLES)}"
    elif condition.startswith("UNRESOLVED_COLUMN"):
        name = _bare(given.get("objectName", ""))
        said = f"there is no column '{name}'"
        offered = [_bare(one) for one in given.get("proposal", "").split(", ") if one]
        hint = _near(name, offered) or _columns_in(query) or None
    elif condition.startswith("UNRESOLVED_ROUTINE"):
        said = f"there is no function '{_bare(given.get('routineName', ''))}'"
    elif condition == "PARSE_SYNTAX_ERROR":
        said = f"this is not SQL, at or near {given.get('error', 'its end')}"
    return InvalidInput("\n".join([said.splitlines()[0], *_pointed(error, query)]), hint=hint)


def _asked(error: Exception, what: str) -> Any:
    """What an error of PySpark's knows of itself; None for any other."""
    try:
        return getattr(error, what)()
    except Exception:  # it asks Java, which may have gone
        return None


def _pointed(error: Exception, query: str) -> list[str]:
    """The line of the query that is meant, and a mark under what is wrong with it."""
    start, length = None, 1
    contexts = _asked(error, "getQueryContext") or []
    with contextlib.suppress(Exception):
        start = contexts[0].startIndex()
        length = contexts[0].stopIndex() - start + 1
    if start is None and (found := _AT.search(str(error))):
        lines = query.splitlines(keepends=True)
        start = sum(map(len, lines[: int(found[1]) - 1])) + int(found[2])
    if start is None or start < 0:
        return []
    before = query[:start]
    number, column = before.count("\n") + 1, start - (before.rfind("\n") + 1)
    line = (query.splitlines() or [""])[min(number, query.count("\n") + 1) - 1]
    marks = "^" * max(1, min(length, len(line) - column))
    return [f"  line {number}, column {column + 1}:", f"    {line}", f"    {' ' * column}{marks}"]


def _near(name: str, known: list[str]) -> str | None:
    found = difflib.get_close_matches(name.lower(), known, n=_NEAR, cutoff=0.5)
    return f"did you mean {' or '.join(found)}?" if found else None


def _columns_in(query: str) -> str:
    """The columns of the first table that a query names."""
    for name, table in TABLES.items():
        if re.search(rf"\b{name}\b", query, re.IGNORECASE):
            return f"{name} has {', '.join(column.name for column in table.columns)}"
    return ""


def _bare(name: str) -> str:
    return name.replace("`", "").strip()
