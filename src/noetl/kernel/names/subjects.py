"""Names as NATS subjects, and the two subjects that work travels on.

A subject is a route and never the authority on a name, but it must lead back to one. A token is the
spelling of a segment with `.` escaped too, because there it separates tokens: `e1.s0.f3` becomes
`e1%2Es0%2Ef3`. A version is a last token that begins with `@`. Only what we print is read back.

    noetl.names.<segment>....[@<version>]
    noetl.events.<tenant>.<org>.<execution>.<shard>[.sparse]
    noetl.commands.<pool>.<execution>

`-` stands for the execution of work that belongs to none.
"""

from __future__ import annotations

import msgspec

from noetl.errors import InvalidName
from noetl.kernel.names.address import SCHEME, check_tenant, join
from noetl.kernel.names.locator import LegacyResult, Name, parse
from noetl.kernel.names.segments import check, check_number, decode, encode, read_number, show
from noetl.kernel.names.shards import parse_shard, shard_label

__all__ = [
    "CommandSubject",
    "EventSubject",
    "from_subject",
    "parse_command_subject",
    "parse_event_subject",
    "to_subject",
]

_NAMES = "noetl.names."
_LEGACY = "noetl.names.execution."
_EVENTS = "noetl.events."
_COMMANDS = "noetl.commands."
_SPARSE = ".sparse"
_NO_EXECUTION = "-"


class EventSubject(msgspec.Struct, frozen=True, kw_only=True):
    """Where the events of one execution are published; `sparse` for appends that leave the dense stream alone."""

    tenant: str
    org: str
    execution: int | None
    shard: int
    sparse: bool = False

    def __post_init__(self) -> None:
        check_tenant(self.tenant)
        check("organization", self.org)
        shard_label(self.shard)
        _check_execution(self.execution)

    def __str__(self) -> str:
        scope = f"{_token(self.tenant)}.{_token(self.org)}"
        subject = f"{_EVENTS}{scope}.{_execution_token(self.execution)}.{shard_label(self.shard)}"
        return subject + _SPARSE if self.sparse else subject


class CommandSubject(msgspec.Struct, frozen=True, kw_only=True):
    """Where the commands of one execution wait for a worker of a pool."""

    pool: str
    execution: int | None

    def __post_init__(self) -> None:
        check("pool", self.pool)
        _check_execution(self.execution)

    def __str__(self) -> str:
        return f"{_COMMANDS}{_token(self.pool)}.{_execution_token(self.execution)}"


def to_subject(name: Name) -> str:
    """The subject of a name of any form."""
    body, at, version = str(name).removeprefix(SCHEME).partition("@")
    # An older name keeps a spelling that need not be canonical, so its own escapes are escaped again.
    respell = _token if isinstance(name, LegacyResult) else _escape_dots
    tokens = [respell(segment) for segment in body.split("/")]
    return _NAMES + ".".join([*tokens, f"@{_escape_dots(version)}"] if at else tokens)


def from_subject(subject: str) -> Name:
    """The name that `to_subject` made this subject of."""
    if not subject.startswith(_NAMES):
        raise _not_a_subject(subject, f"it does not begin with {_NAMES}")
    try:
        name = parse(_locator_of(subject))
    except InvalidName as error:
        raise _not_a_subject(subject, error.message) from None
    _check_canonical(subject, to_subject(name))
    return name


def _locator_of(subject: str) -> str:
    tokens = subject.removeprefix(_NAMES).split(".")
    if subject.startswith(_LEGACY):
        return join(map(decode, tokens))
    text = join(token.replace("%2E", ".") for token in tokens)
    return text.replace("/@", "@")


def parse_event_subject(subject: str) -> EventSubject:
    """The tenant, organization, execution and shard that an event was published for."""
    body = subject.removeprefix(_EVENTS)
    tokens = body.removesuffix(_SPARSE).split(".")
    if body == subject or len(tokens) != 4:
        raise _not_a_subject(subject, f"the form is {_EVENTS}<tenant>.<org>.<execution>.<shard>")
    try:
        tenant, org, execution, shard = map(decode, tokens)
        read = EventSubject(
            tenant=tenant,
            org=org,
            execution=_read_execution(execution),
            shard=parse_shard(shard),
            sparse=body.endswith(_SPARSE),
        )
    except InvalidName as error:
        raise _not_a_subject(subject, error.message) from None
    _check_canonical(subject, str(read))
    return read


def parse_command_subject(subject: str) -> CommandSubject:
    """The pool and execution that a command waits for."""
    body = subject.removeprefix(_COMMANDS)
    tokens = body.split(".")
    if body == subject or len(tokens) != 2:
        raise _not_a_subject(subject, f"the form is {_COMMANDS}<pool>.<execution>")
    try:
        read = CommandSubject(pool=decode(tokens[0]), execution=_read_execution(tokens[1]))
    except InvalidName as error:
        raise _not_a_subject(subject, error.message) from None
    _check_canonical(subject, str(read))
    return read


def _token(text: str) -> str:
    return _escape_dots(encode(text))


def _escape_dots(spelling: str) -> str:
    return spelling.replace(".", "%2E")


def _execution_token(execution: int | None) -> str:
    return _NO_EXECUTION if execution is None else str(execution)


def _read_execution(token: str) -> int | None:
    return None if token == _NO_EXECUTION else read_number("execution", token)


def _check_execution(execution: int | None) -> None:
    if execution is not None:
        check_number("execution", execution)


def _check_canonical(subject: str, canonical: str) -> None:
    if subject != canonical:
        raise _not_a_subject(subject, f"its canonical spelling is {show(canonical)}")


def _not_a_subject(subject: str, rule: str) -> InvalidName:
    return InvalidName(f"{show(subject)} is not a subject of ours: {rule}")
