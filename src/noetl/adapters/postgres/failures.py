"""Postgres's errors in the words of this project: what happened, and what to do about it."""

from __future__ import annotations

import psycopg

from noetl.errors import AccessRefused, Corruption, InvalidInput, NoetlError, StorageFull, Unavailable

__all__ = ["collided", "explain", "lost"]

# A connection that was never made has no SQLSTATE: libpq keeps the words only.
_WORDS = (
    ("28P01", ("password authentication failed", "no password supplied", "fe_sendauth")),
    ("28000", ("no pg_hba.conf entry", 'role "', "authentication failed")),
    ("3D000", ('database "',)),
    ("53300", ("too many clients", "too many connections", "remaining connection slots")),
    ("57P03", ("starting up", "shutting down", "in recovery mode", "not yet accepting connections")),
)
_COLLISIONS = ("40001", "40P01")
_LOST = ("08", "57P0")
_DOUBT = "was lost in the middle of a write, which may have been done or not"
_LOOK = "look before you do it again"
_HINTS: dict[str, tuple[type[NoetlError], str, str]] = {
    "28": (AccessRefused, "does not let us in", "correct the user and the password of ledger.url"),
    "3D": (AccessRefused, "has no such database", "create it, or correct ledger.url; then run noetl db migrate"),
    "42501": (AccessRefused, "does not allow this", "the user of ledger.url must own the schema noetl"),
    "53100": (StorageFull, "has no room left; nothing was written", "free some space on the server and try again"),
    "53300": (Unavailable, "takes no more connections", "raise its max_connections, or lower ledger.connections"),
    "53": (Unavailable, "is out of resources", "look at its log"),
    "55P03": (Unavailable, "is being written to by another process for longer than we may wait",
              "try again when it has finished, or raise ledger.busy_timeout"),
    "57014": (Unavailable, "stopped a statement that took too long", "raise its statement_timeout, or see its load"),
    "25006": (Unavailable, "takes no writes: it is a standby, or set to read-only", "use the address of the primary"),
    "40": (Unavailable, "kept running into the work of others", "try again"),
    "08": (Unavailable, "cannot be reached", "see that it runs, and that its address is right"),
    "57P0": (Unavailable, "is starting up or shutting down", "try again when it runs"),
    "58": (Unavailable, "cannot use its disk", "check the server's disk and its log"),
    "XX": (Corruption, "is damaged", "keep a copy of its data directory, and restore from a backup"),
    "42": (Corruption, "has other tables than this release has made", "run noetl db status"),
    "3F": (Corruption, "has other tables than this release has made", "run noetl db status"),
    "23": (Corruption, "holds rows that contradict each other", "run noetl verify --all"),
    "22": (Corruption, "holds values that cannot be read", "run noetl verify --all"),
}  # fmt: skip


def state_of(error: psycopg.Error) -> str:
    """The SQLSTATE of an error, read from its words where the server could not give one."""
    if error.sqlstate or not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return error.sqlstate or ""
    text = str(error)
    found = next((state for state, words in _WORDS if any(word in text for word in words)), None)
    return found or "08006"


def lost(error: BaseException) -> bool:
    """Whether the connection is gone, or was never made for a reason that may pass."""
    if isinstance(error, TimeoutError):
        return True
    return isinstance(error, psycopg.Error) and state_of(error).startswith(_LOST)


def collided(error: BaseException) -> bool:
    """Whether the server has rolled this back for the sake of another transaction."""
    return isinstance(error, psycopg.Error) and error.sqlstate in _COLLISIONS


def explain(error: BaseException, place: object, *, in_doubt: bool = False) -> NoetlError:
    """The error a caller should see. While `in_doubt` a lost connection leaves open whether the work was done."""
    if isinstance(error, NoetlError):
        return error
    if isinstance(error, TimeoutError) and in_doubt:
        return Unavailable(f"{place} {_DOUBT}", hint=_LOOK)
    if isinstance(error, TimeoutError):
        return Unavailable(f"{place} does not answer", hint="see that it runs and is not overloaded")
    if not isinstance(error, psycopg.Error):
        return Unavailable(f"{place}: {error}")
    state = state_of(error)
    if not state and isinstance(error, psycopg.DataError):  # never sent: the driver has looked at what it was given
        return InvalidInput(f"what was given cannot be kept in Postgres: {error}", hint="leave the character out")
    kind, what, hint = next(
        (_HINTS[state[:size]] for size in (5, 4, 2) if state[:size] in _HINTS),
        (Unavailable, "refused a statement", "look at its log"),
    )
    said = " ".join((error.diag.message_primary or str(error)).split())
    if in_doubt and state.startswith(_LOST):
        what, hint = _DOUBT, _LOOK
    return kind(f"{place} {what}: {said}", hint=hint)
