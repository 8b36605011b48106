"""The resolver of an installation: which schemes its tasks may use, wired from the settings."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from noetl.payloads.resolver import Caller, Entry, Resolver, Scheme, TooLarge, Written, cannot
from noetl.settings import Settings

__all__ = ["KeepsBytes", "resolver_of"]

_BUCKETS = ("s3", "gs", "gcs", "az", "azure", "abfs", "abfss")


class KeepsBytes(Protocol):
    """Whoever knows what is behind `noetl://` addresses."""

    async def read(self, uri: str) -> Any:
        """Bytes, or the value of a result. Raises NotFound, AccessRefused, BadField."""
        ...

    async def store(self, uri: str, data: bytes) -> str:
        """Keep bytes; the address that has them."""
        ...


def resolver_of(settings: Settings, addresses: Callable[[], KeepsBytes] | None = None) -> Resolver:
    """Everything that can be addressed here; without `addresses` what others keep, not what we do.

    Nothing is imported or opened before the first address that needs it.
    """

    def files() -> Scheme:
        from noetl.payloads.files import Files

        closed = [Path(unquote(urlsplit(url).path)) for url, _ in _kept_at(settings) if url.startswith("file:")]
        return Files([Path(root) for root in settings.tools.artifact_roots], closed=closed)

    def buckets() -> Scheme:
        return _buckets(settings)

    outside: dict[str, Callable[[], Scheme]] = {"file": files, **dict.fromkeys(_BUCKETS, buckets)}
    if addresses is None:
        return Resolver(outside)
    return Resolver({"noetl": lambda: _Kept(addresses()), **outside})


def _buckets(settings: Settings) -> Scheme:
    from noetl.adapters.objects.addresses import Buckets, bucket_of

    own = [bucket for url, options in _kept_at(settings) if (bucket := bucket_of(url, options)) is not None]
    return Buckets(own, allow_link_local=settings.tools.http_link_local)


def _kept_at(settings: Settings) -> list[tuple[str, dict[str, str]]]:
    """The stores of this installation, and how they are reached. Tasks have `noetl://` addresses for what is there."""
    from noetl.runtime.stores import read_pairs

    payloads = settings.payloads
    options = read_pairs("payloads.options", payloads.options)
    routes = read_pairs("payloads.routes", payloads.routes)
    copied = read_pairs("payloads.replica_options", payloads.replica_options)
    named = [(payloads.url, options), *((url, options) for url in routes.values()), (payloads.replica, copied)]
    return [(url, how) for url, how in named if url is not None]


class _Kept:
    """`noetl://` addresses: what this installation keeps for the tenant."""

    def __init__(self, addresses: KeepsBytes) -> None:
        self._addresses = addresses

    async def read(self, uri: str, caller: Caller, *, limit: int) -> Any:
        found = await self._addresses.read(uri)
        if isinstance(found, bytes) and len(found) > limit:
            raise TooLarge(f"'{uri}' is larger than {limit} bytes")
        return found

    async def stream(self, uri: str, caller: Caller) -> AsyncGenerator[bytes, None]:
        found = await self._addresses.read(uri)
        if not isinstance(found, bytes):
            raise cannot(uri, "read as bytes: it is a result")
        yield found

    async def write(self, uri: str, data: bytes, caller: Caller, *, overwrite: bool) -> Written:
        """Bytes are kept under their digest, so nothing is ever replaced."""
        return Written(await self._addresses.store(uri, data))

    def list(self, uri: str, caller: Caller) -> AsyncGenerator[Entry, None]:
        raise cannot(uri, "listed")

    async def link(self, uri: str, caller: Caller, *, expires_in: timedelta) -> str:
        raise cannot(uri, "linked to")
