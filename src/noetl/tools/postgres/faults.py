"""What went wrong, by SQLSTATE (DSL 7.3)."""

from __future__ import annotations

import psycopg

from noetl.kernel.event import Json
from noetl.tools.base import Outcome, failed

__all__ = ["StatementFailed", "connection_fault", "fault", "timeout_fault"]

# The longest prefix that fits decides.
_KINDS = {
    "08": "db_connection", "53": "db_connection", "57P0": "db_connection",
    "40001": "db_deadlock", "40P01": "db_deadlock",
    "57014": "db_timeout", "55P03": "db_timeout",
    "23": "db_constraint",
    "42": "schema", "3D": "schema", "3F": "schema",
    "28": "auth",
}  # fmt: skip
# A refused log-in reaches us as text only: libpq keeps no SQLSTATE of a connection that was never made.
_REFUSALS = (
    ("28P01", ("password authentication failed", "no password supplied", "fe_sendauth")),
    ("28000", ("no pg_hba.conf entry", 'role "', "authentication failed")),
    ("3D000", ('database "',)),
    ("53300", ("too many clients", "too many connections", "remaining connection slots")),
    ("57P03", ("starting up", "shutting down", "in recovery mode")),
)
UNABLE_TO_CONNECT = "08001"
CONNECTION_LOST = "08006"


class StatementFailed(Exception):
    """One statement of several; the cause has the details."""

    def __init__(self, place: str, cause: psycopg.Error, statement: str = "") -> None:
        super().__init__(place)
        self.place = place
        self.cause = cause
        self.statement = statement


def fault(error: StatementFailed, logs: str = "") -> Outcome:
    """The outcome of a statement that the server refused, or that it did not live to answer."""
    cause = error.cause
    if isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError) and not cause.sqlstate:
        return _outcome(CONNECTION_LOST, f"{error.place}: {_line(str(cause))}", logs)
    if not cause.sqlstate:
        code = f"PY_{type(cause).__name__}"
        extra: Json = {"pg": {"code": code, "sqlstate": None}}
        return failed("unknown", code, f"{error.place}: {_line(str(cause))}", extra=extra, logs=logs)
    said = cause.diag.message_primary or str(cause)
    detail = f" ({cause.diag.message_detail})" if cause.diag.message_detail else ""
    where = _where(error.statement, cause.diag.statement_position)
    return _outcome(cause.sqlstate, f"{error.place}: {_line(said + detail)}{where}", logs)


def connection_fault(error: psycopg.Error) -> Outcome:
    """The outcome of a connection that was never made."""
    text = _line(str(error))
    state = error.sqlstate or next(
        (state for state, words in _REFUSALS if any(word in text for word in words)), UNABLE_TO_CONNECT
    )
    return _outcome(state, text, "")


def timeout_fault(timeout: float | None, logs: str = "") -> Outcome:
    """The outcome of a call whose time is up."""
    return _outcome("57014", f"the statements took longer than {timeout:g} s", logs)


def _outcome(state: str, message: str, logs: str) -> Outcome:
    kind = next((_KINDS[state[:size]] for size in (5, 4, 2) if state[:size] in _KINDS), "unknown")
    code = f"PG_{state}"
    return failed(kind, code, message, extra={"pg": {"code": code, "sqlstate": state}}, logs=logs)


def _where(statement: str, position: str | None) -> str:
    """The place in the statement at which the server stopped. Not its text: half a secret would not be recognised."""
    if not position or not position.isdecimal() or not 0 < int(position) <= len(statement):
        return ""
    before = statement[: int(position) - 1]
    return f" at line {before.count(chr(10)) + 1}, column {len(before) - (before.rfind(chr(10)) + 1) + 1}"


def _line(text: str) -> str:
    return " ".join(text.split())
