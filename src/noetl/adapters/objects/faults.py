"""What a cloud store's failure means, in words a person can act on.

The client library reports a failure as one long text: address, headers, the server's answer. An address can carry
a signature and an answer can quote the request, so nothing of that text is passed on. Only what is known to be
harmless is taken from it: the status, the server's error code, the kind of network trouble.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple, ParamSpec, TypeVar

import msgspec

from noetl.errors import AccessRefused, Conflict, InvalidInput, NoetlError, NotFound, StorageFull, Unavailable

__all__ = ["OutOfRange", "Place", "Taken", "ask", "explain", "is_undecided"]

P = ParamSpec("P")
T = TypeVar("T")

_STATUS = re.compile(r"status(?: code)?: (\d{3})")
_CODE = re.compile(r"<Code>\s*([A-Za-z0-9.]{1,80})\s*</Code>|\"reason\":\s*\"([A-Za-z0-9]{1,80})\"")
_BEYOND_MEMORY = "Wanted range starting at"  # the library's own store in memory has no statuses
_UNDECIDED = "ConditionalRequestConflict"  # S3: two conditional writes met, neither has won yet


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a store is, as errors name it. It holds nothing that is secret."""

    url: str
    """`s3://bucket`, without the prefix."""
    endpoint: str | None = None
    container: str = "bucket"

    def __str__(self) -> str:
        return f"{self.url} at {self.endpoint}" if self.endpoint else self.url


class Taken(Conflict):
    """There is an object under the key already."""


class OutOfRange(InvalidInput):
    """The object ends before the range that was asked for."""


class _Rule(NamedTuple):
    """What is said when the error has one of these codes, statuses or marks."""

    marks: frozenset[str]
    error: type[Unavailable]
    cause: str
    hint: str


def _marks(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The first rule that fits speaks. Codes come before statuses: they say more.
_RULES = (
    _Rule(
        _marks("NoSuchBucket ContainerNotFound AccountNotFound"),
        AccessRefused,
        "the {container} does not exist",
        "create it, or correct the name in the url",
    ),
    _Rule(
        _marks(
            "507 InsufficientStorage XMinioStorageFull StorageFull QuotaExceeded AccountLimitExceeded quotaExceeded"
        ),
        StorageFull,
        "there is no room left",
        "free space or raise the quota",
    ),
    _Rule(
        _marks("RequestTimeTooSkewed RequestExpired"),
        AccessRefused,
        "this machine's clock differs too much from the store's",
        "set the clock, for example with NTP",
    ),
    _Rule(
        _marks(
            "401 InvalidAccessKeyId SignatureDoesNotMatch AuthenticationFailed AuthorizationFailure InvalidToken"
            " ExpiredToken TokenRefreshRequired InvalidAuthenticationInfo authError required"
        ),
        AccessRefused,
        "the credentials are not accepted",
        "check the key and its secret, and that they have not expired",
    ),
    _Rule(
        _marks("169.254.169.254 metadata.google.internal"),
        AccessRefused,
        "no credentials were found, neither given, nor in the environment, nor from this machine's metadata service",
        "give credentials, or set the variables the provider documents",
    ),
    _Rule(
        _marks("301 307 PermanentRedirect AuthorizationHeaderMalformed IllegalLocationConstraintException"),
        AccessRefused,
        "the {container} is in another region",
        "set the option region to the one the {container} was made in",
    ),
    _Rule(
        _marks("403"),
        AccessRefused,
        "access is denied",
        "allow reading, writing, listing and deleting in this {container} for these credentials",
    ),
    _Rule(
        _marks("429 503 SlowDown ServerBusy TooManyRequests rateLimitExceeded"),
        Unavailable,
        "the store asks to slow down, and did so until the retries were used up",
        "try again later, or ask for a higher request rate",
    ),
    _Rule(
        _marks("EntityTooLarge InvalidMaxSizeRequest"),
        AccessRefused,
        "the object is larger than the store takes in one piece",
        "write it as several objects",
    ),
    _Rule(_marks("500 502 504"), Unavailable, "the store failed", "try again; if it lasts, ask who runs the store"),
)

# In the text of an error of the network, where there is no answer with a status.
_NETWORK = (
    ("lookup", "its name cannot be resolved", "check the option endpoint, and DNS"),
    ("dns", "its name cannot be resolved", "check the option endpoint, and DNS"),
    (
        "InvalidCertificate",
        "its TLS certificate is not trusted",
        "set the option ca_file to the certificate of the authority that signed it",
    ),
    (
        "InvalidContentType",
        "it does not speak TLS",
        "write http:// in the option endpoint, or give the store a certificate",
    ),
    ("tls", "a TLS connection cannot be made", "check that the endpoint speaks https and its certificate is valid"),
    ("ConnectionRefused", "nothing listens there", "start the store, or correct the option endpoint"),
    ("Timeout", "it did not answer in time", "check the network, or raise the option timeout"),
    ("TimedOut", "it did not answer in time", "check the network, or raise the option timeout"),
    ("kind: Connect,", "no connection can be made", "check the network and the option endpoint"),
    ("kind: Request", "the connection broke", "check the network and try again; nothing was half-written"),
    ("kind: Interrupted", "the connection broke", "check the network and try again; nothing was half-written"),
    ("kind: Decode", "the connection broke", "check the network and try again; nothing was half-written"),
)


async def ask(place: Place, key: str | None, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """The library's answer, or an error of ours.

    It is raised outside the handler: as the context of another error, the library's text would still reach a log.
    """
    try:
        return await call(*args, **kwargs)
    except NoetlError:
        raise
    except Exception as error:  # the library raises its own tree, OSError, ValueError, and its panics
        failure = explain(error, place, key)
    raise failure


def explain(error: Exception, place: Place, key: str | None) -> NoetlError:
    """The error of ours that says what one of the library's means."""
    text = str(error)
    code, status = _code(text), _status(text)
    where = f"'{key}' in {place}" if key else f"{place}"
    kind = type(error).__name__
    if kind in ("AlreadyExistsError", "PreconditionError"):
        return Taken(f"{where} exists already", hint=code)
    if status == "416" or _BEYOND_MEMORY in text:
        return OutOfRange(f"{where} ends before the range")
    found = {code, status, *(host for host in ("169.254.169.254", "metadata.google.internal") if host in text)}
    for rule in _RULES:
        if rule.marks & found:
            said = f" ({code or status})" if code or status else ""
            cause, hint = (part.format(container=place.container) for part in (rule.cause, rule.hint))
            return rule.error(f"{where} cannot be used: {cause}{said}", hint=hint)
    if isinstance(error, FileNotFoundError):
        return NotFound(f"no object under '{key}'") if key else Unavailable(f"{where} cannot be used: not found")
    return _explain_network(text, where) or _unknown(where, kind, code or status)


def is_undecided(taken: Taken) -> bool:
    """True when the store says that the race for a key is still open, so that the loser has to ask again."""
    return taken.hint == _UNDECIDED


def _explain_network(text: str, where: str) -> Unavailable | None:
    if "builder error" in text:
        return Unavailable(f"{where} cannot be used: the address is not allowed", hint="check the option endpoint")
    for mark, cause, hint in _NETWORK:
        if mark in text:
            return Unavailable(f"{where} cannot be reached: {cause}", hint=hint)
    return None


def _unknown(where: str, kind: str, said: str | None) -> Unavailable:
    return Unavailable(
        f"{where} cannot be used: the store's client reports {kind}{f' ({said})' if said else ''}",
        hint="check the url and the options of the store",
    )


def _code(text: str) -> str | None:
    found = _CODE.search(text)
    return found and (found[1] or found[2])


def _status(text: str) -> str | None:
    found = _STATUS.search(text)
    return found and found[1]
