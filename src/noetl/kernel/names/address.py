"""The outer shape that all `noetl://` texts share, before anyone asks what they name.

`noetl://<segment>/<segment>/...[@<version>]`, at most 2,048 bytes of ASCII. A name is an identity and
not a request, so it has no query, fragment, user or port, and `/` never stands twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec

from noetl.errors import InvalidName
from noetl.kernel.names.segments import check, encode, read_segment, show

__all__ = ["MAX_BYTES", "SCHEME", "Address", "check_length", "check_tenant", "check_text", "join", "reading", "split"]

SCHEME = "noetl://"
MAX_BYTES = 2048

_RESERVED_TENANTS = {"tenant": "an infrastructure name", "execution": "a name of the older form"}
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f?#]|[^\x00-\x7f]")


class Address(msgspec.Struct, frozen=True):
    """A text cut at its separators: segments as they are spelled, the version already read."""

    segments: tuple[str, ...]
    version: str | None


@contextmanager
def reading(text: str) -> Iterator[None]:
    """Let a refusal inside the block name the whole text that was being read."""
    try:
        yield
    except InvalidName as error:
        raise InvalidName(f"{show(text)} is not a valid name: {error.message}", hint=error.hint) from None


def split(text: str) -> Address:
    """Cut a locator into segments and version, or say which rule of the outer shape it breaks."""
    check_text(text)
    if not text.startswith(SCHEME):
        raise InvalidName(f"it does not begin with {SCHEME}")
    *parents, last = text.removeprefix(SCHEME).split("/")
    _check_authority((*parents, last)[0], alone=not parents)
    leaf, at, version = last.partition("@")
    segments = (*parents, leaf)
    if not all(segments):
        raise InvalidName("it has an empty segment")
    if any("@" in segment for segment in (*parents, version)):
        raise InvalidName("'@' stands once, between the last segment and the version", hint="in a segment write %40")
    return Address(segments, read_segment("version", version) if at else None)


def check_text(text: str) -> None:
    """Refuse what no name may hold, whatever its form."""
    check_length(text)
    if found := _FORBIDDEN.search(text):
        raise _forbidden(found[0])


def _forbidden(character: str) -> InvalidName:
    if character == "?":
        return InvalidName("a name has no query")
    if character == "#":
        return InvalidName("a name has no fragment")
    if character.isspace():
        return InvalidName(f"it holds the whitespace {show(character)}", hint=f"write {encode(character)}")
    return InvalidName(f"character {show(character)} must be percent-encoded", hint=f"write {encode(character)}")


def check_length(text: str) -> None:
    """Refuse a text longer than any store of names has to hold."""
    size = len(text.encode(errors="surrogatepass"))
    if size > MAX_BYTES:
        raise InvalidName(f"a name has at most {MAX_BYTES} bytes, and {show(text)} has {size}")


def _check_authority(first: str, *, alone: bool) -> None:
    if "@" in first and not alone:
        raise InvalidName("user information is not part of a name")
    if ":" in first:
        raise InvalidName("a port is not part of a name")


def join(spellings: Iterable[str], version: str | None = None) -> str:
    """The locator of segments that are already spelled, at the given version."""
    text = SCHEME + "/".join(spellings)
    return text if version is None else f"{text}@{encode(version)}"


def check_tenant(tenant: str) -> str:
    """The tenant id, if a name that begins with it can only be read as that tenant's."""
    check("tenant", tenant)
    if form := _RESERVED_TENANTS.get(tenant):
        raise InvalidName(
            f"a tenant cannot be called {show(tenant)}: {SCHEME}{tenant}/... is {form}", hint="choose another tenant id"
        )
    return tenant
