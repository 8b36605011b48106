"""The errors a person can meet, as a small tree.

Each branch says what the reader should do next: correct the input, wait for a dependency, retry with
fresh state, or stop trusting the data. The command line turns a branch into an exit code; nothing
else in the system needs to know more than the branch.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "AccessRefused",
    "Archived",
    "Conflict",
    "Corruption",
    "Forbidden",
    "IdempotencyMismatch",
    "IntegrityMismatch",
    "InvalidDocument",
    "InvalidEvent",
    "InvalidInput",
    "InvalidName",
    "InvalidSetting",
    "LeaseLost",
    "NoetlError",
    "NotFound",
    "PartialDuplicate",
    "QuotaExceeded",
    "StorageFull",
    "StreamSealed",
    "Unauthenticated",
    "Unavailable",
    "VersionConflict",
]


class NoetlError(Exception):
    """Something went wrong that a person can act on: a cause, and where we know one, a fix."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InvalidInput(NoetlError):
    """What was handed to us is wrong; the same call will fail again until it is corrected."""


class InvalidName(InvalidInput):
    """Text that is not one of the forms a locator, URN or subject may take."""


class InvalidSetting(InvalidInput):
    """A configuration value that is unknown or of the wrong kind; the message says where it stands."""


class NotFound(InvalidInput):
    """An id, file or object that is not there."""


class Archived(NotFound):
    """Events that are not in the ledger any more: retention has taken them out, and an archive has them."""

    def __init__(self, stream_id: str, uri: str, *, position: int | None = None) -> None:
        super().__init__(
            f"the events of {stream_id} are not in the ledger any more, they are archived in {uri}",
            hint=f"noetl restore {uri} puts them back, noetl replay --from-archive {uri} reads them where they are",
        )
        self.stream_id = stream_id
        self.uri = uri
        self.position = position
        """Which of them was asked for, if it was one."""


class InvalidEvent(InvalidInput):
    """An event that breaks the envelope's rules, or a known event whose payload cannot be understood."""

    def __init__(self, field: str, message: str, *, event_id: int | None = None, hint: str | None = None) -> None:
        where = f"event {event_id}, field '{field}'" if event_id is not None else f"event field '{field}'"
        super().__init__(f"{where}: {message}", hint=hint)
        self.field = field
        self.reason = message
        self.event_id = event_id


class InvalidDocument(InvalidInput):
    """A playbook or subscription that breaks the language's rules. `problems` has all of them, in order of position."""

    def __init__(self, problems: Sequence[object], *, shown: int = 3) -> None:
        first = "\n".join(str(problem) for problem in problems[:shown])
        more = len(problems) - shown
        super().__init__(first + (f"\nand {more} more, {len(problems)} in all" if more > 0 else ""))
        self.problems = tuple(problems)


class Unauthenticated(NoetlError):
    """Nobody we know is asking: no token, or one that does not hold. Asking again needs another token."""


class Forbidden(NoetlError):
    """We know who is asking, and they may not do this. The message says what they would need."""


class Unavailable(NoetlError):
    """Something we depend on did not answer; the same call may succeed later."""


class AccessRefused(Unavailable):
    """What we depend on has answered, and will say no until a person changes a key, a right or a name."""


class StorageFull(Unavailable):
    """The disk or the bucket has no room left; nothing was half-written."""


class QuotaExceeded(Unavailable):
    """A tenant has as much as it may have, or asks faster than it may; the same call may succeed later."""

    def __init__(self, message: str, *, limit: str, value: int, retry_after: int) -> None:
        super().__init__(message, hint=f"try again in {retry_after} s, or have the limit raised")
        self.limit = limit
        self.value = value
        self.retry_after = retry_after


class Conflict(NoetlError):
    """Somebody else was faster. Reload and decide again."""


class VersionConflict(Conflict):
    """A stream has moved past the version its writer expected."""

    def __init__(self, stream_id: str, expected: int, actual: int) -> None:
        super().__init__(
            f"stream '{stream_id}' is at version {actual}, the writer expected {expected}",
            hint="reload the stream and decide again",
        )
        self.stream_id = stream_id
        self.expected = expected
        self.actual = actual


class PartialDuplicate(Conflict):
    """Some of an append's idempotency keys are in the log and some are not, so it is neither new nor a retry."""

    def __init__(self, present: list[str], missing: list[str]) -> None:
        super().__init__(
            f"{len(present)} of {len(present) + len(missing)} idempotency keys are already in the log "
            f"(first present '{present[0]}', first missing '{missing[0]}'); nothing was written",
            hint="retry exactly the append that was first sent, or use new keys",
        )
        self.present = present
        self.missing = missing


class IdempotencyMismatch(Conflict):
    """An idempotency key is in the log with other content: two different facts claim to be one."""

    def __init__(self, key: str, event_id: int) -> None:
        super().__init__(
            f"idempotency key '{key}' belongs to event {event_id}, whose content differs; nothing was written",
            hint="a key names one fact; use another key for another fact",
        )
        self.key = key
        self.event_id = event_id


class StreamSealed(Conflict):
    """A sealed stream accepts nothing more."""

    def __init__(self, stream_id: str) -> None:
        super().__init__(f"stream '{stream_id}' is sealed and accepts no more events")
        self.stream_id = stream_id


class LeaseLost(Conflict):
    """A lease was renewed or released by somebody who no longer holds it."""


class Corruption(NoetlError):
    """Stored data is not what was written. It is reported, never guessed around."""


class IntegrityMismatch(Corruption):
    """A checksum, a hash chain or a parity comparison does not hold."""
