"""One way from an address to what is there, whatever its scheme.

A scheme is registered once and then means the same in an artifact task, as the source of a script and in a replay.
What cannot be resolved is an error: nobody is given an empty value in place of one that is gone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec

from noetl.errors import InvalidInput
from noetl.ports.objects import ObjectStore

__all__ = ["NOBODY", "Caller", "Entry", "Resolver", "Scheme", "Stores", "TooLarge", "Written", "cannot", "scheme_of"]


class TooLarge(InvalidInput):
    """More than the reader can hold."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """On whose behalf an address is followed."""

    auth: Any = None
    """The data of the credential that the task names, or such data by alias."""
    options: Mapping[str, object] = {}
    """How the store is reached, as far as the playbook says."""
    directory: Path = Path()
    """Where relative paths begin; files below it may be used."""
    scratch: Path | None = None
    """A directory of the execution's own, which may be used too."""


NOBODY = Caller()
"""Nobody in particular: no credential, and the directory of this process."""


class Written(msgspec.Struct, frozen=True):
    """Where bytes were put; `created` is False if there was something already and it was left alone."""

    uri: str
    created: bool = True


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One object of a listing."""

    uri: str
    size_bytes: int
    modified_at: str
    etag: str | None = None


class Scheme(Protocol):
    """What the addresses of one scheme lead to.

    Every method raises NotFound if there is nothing, InvalidInput if the address or the credential cannot be used,
    Unavailable if the store cannot be, and AccessRefused if it could but will not.
    """

    async def read(self, uri: str, caller: Caller, *, limit: int) -> Any:
        """Bytes as they are stored, or a value that is already decoded. Raises TooLarge above `limit` bytes."""
        ...

    def stream(self, uri: str, caller: Caller) -> AsyncGenerator[bytes, None]:
        """Bytes as they are stored, in pieces of bounded size."""
        ...

    async def write(self, uri: str, data: bytes, caller: Caller, *, overwrite: bool) -> Written:
        """Put bytes there, all of them or none. Without `overwrite` what is there stays."""
        ...

    def list(self, uri: str, caller: Caller) -> AsyncGenerator[Entry, None]:
        """Every object whose address begins with this one, in order."""
        ...

    async def link(self, uri: str, caller: Caller, *, expires_in: timedelta) -> str:
        """An address that anybody can read this one object with, until it expires."""
        ...


@runtime_checkable
class Stores(Protocol):
    """A scheme whose addresses are those of objects in stores."""

    async def store(self, uri: str, caller: Caller) -> tuple[ObjectStore, str]:
        """The store that an address leads into, and the key that it has there. Raises as a scheme does."""
        ...


class Resolver:
    """The registry of schemes. Each is made when the first address of it is asked for."""

    def __init__(self, schemes: Mapping[str, Callable[[], Scheme]]) -> None:
        self._makers = dict(schemes)
        self._made: dict[Callable[[], Scheme], Scheme] = {}

    @property
    def schemes(self) -> tuple[str, ...]:
        """The names of all schemes."""
        return tuple(self._makers)

    async def read(self, uri: str, caller: Caller = NOBODY, *, limit: int) -> Any:
        """What is at an address: bytes as they are stored, or a value. Raises as a scheme does, and TooLarge."""
        return await self._of(uri).read(uri, caller, limit=limit)

    def stream(self, uri: str, caller: Caller = NOBODY) -> AsyncGenerator[bytes, None]:
        """The bytes at an address in pieces of bounded size."""
        return self._of(uri).stream(uri, caller)

    async def write(self, uri: str, data: bytes, caller: Caller = NOBODY, *, overwrite: bool) -> Written:
        """Put bytes at an address, all of them or none."""
        return await self._of(uri).write(uri, data, caller, overwrite=overwrite)

    async def store(self, uri: str, caller: Caller = NOBODY) -> tuple[ObjectStore, str]:
        """The store that an address leads into, for those who write more than one object, and the key there."""
        scheme = self._of(uri)
        if not isinstance(scheme, Stores):
            raise cannot(uri, "used as a store of objects")
        return await scheme.store(uri, caller)

    def list(self, uri: str, caller: Caller = NOBODY) -> AsyncGenerator[Entry, None]:
        """The objects whose address begins with this one, in order."""
        return self._of(uri).list(uri, caller)

    async def link(self, uri: str, caller: Caller = NOBODY, *, expires_in: timedelta) -> str:
        """An address that reads one object until it expires."""
        return await self._of(uri).link(uri, caller, expires_in=expires_in)

    def _of(self, uri: str) -> Scheme:
        """One scheme may go by several names, which then share what it has opened."""
        name = scheme_of(uri)
        if name not in self._makers:
            known = ", ".join(f"{scheme}://" for scheme in self._makers)
            said = f"{name}:// is not a scheme" if name else "there is no scheme"
            raise InvalidInput(f"this is not an address that can be used here: {said}", hint=f"use one of {known}")
        maker = self._makers[name]
        if maker not in self._made:
            self._made[maker] = maker()
        return self._made[maker]


def scheme_of(uri: str) -> str:
    """The scheme of an address, nothing if it has none. No more of the address than this is ever shown unchecked."""
    scheme, found, _ = uri.partition("://")
    return scheme.lower() if found and scheme.isascii() and scheme.replace("+", "").isalnum() else ""


def cannot(uri: str, what: str) -> InvalidInput:
    """The error of a scheme that has no such way of being used."""
    return InvalidInput(f"{scheme_of(uri)}:// addresses cannot be {what}")
