"""`s3://`, `gs://` and `az://` addresses of objects in other people's buckets.

The credential of the task opens them. Without one, the bucket that the settings describe is reached as they say, and
every other as the environment of this process does. What this installation keeps for itself is not reached this way:
its objects have `noetl://` addresses, which check whose they are.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlsplit

import msgspec

from noetl.adapters.objects.access import KINDS, Access, access_of
from noetl.adapters.objects.urls import open_store
from noetl.errors import AccessRefused, InvalidInput, NotFound, Unavailable
from noetl.payloads.blocking import closing
from noetl.payloads.resolver import Caller, Entry, TooLarge, Written, scheme_of
from noetl.ports.objects import ObjectStore
from noetl.tools.http.addresses import is_blocked_address, is_blocked_host

__all__ = ["SCHEMES", "Bucket", "Buckets", "bucket_of"]

SCHEMES: Mapping[str, str] = {
    "s3": "s3", "gs": "gs", "gcs": "gs", "az": "az", "azure": "az", "abfs": "az", "abfss": "az",
}  # fmt: skip
"""Every spelling, and the scheme that it stands for."""
_MOST_OPEN = 32


class Bucket(NamedTuple):
    """A bucket of this installation's own: what it keeps below the prefix is closed to tasks."""

    scheme: str
    name: str
    prefix: str
    options: Mapping[str, object]


class _Place(NamedTuple):
    """An address taken apart."""

    scheme: str
    bucket: str
    account: str | None
    key: str
    root: str
    """The address without the key, as it was written."""


class Buckets:
    """Objects in buckets, one client for each bucket and credential. `own` are the buckets of this installation."""

    def __init__(self, own: Sequence[Bucket] = (), *, allow_link_local: bool = False) -> None:
        self._own = tuple(own)
        self._allow_link_local = allow_link_local
        self._open: OrderedDict[bytes, ObjectStore] = OrderedDict()

    async def read(self, uri: str, caller: Caller, *, limit: int) -> bytes:
        place = self._object(uri)
        store = await self._store(place, caller)
        try:
            # One byte more than allowed is enough to see that there is too much, however much there is.
            data = await store.get(place.key, length=limit + 1)
        except NotFound:
            raise _missing(place) from None
        if len(data) > limit:
            raise TooLarge(f"'{_shown(place)}' is larger than {limit} bytes")
        return data

    async def stream(self, uri: str, caller: Caller) -> AsyncGenerator[bytes, None]:
        place = self._object(uri)
        store = await self._store(place, caller)
        try:
            async with closing(store.stream(place.key)) as pieces:
                async for piece in pieces:
                    yield piece
        except NotFound:
            raise _missing(place) from None

    async def write(self, uri: str, data: bytes, caller: Caller, *, overwrite: bool) -> Written:
        place = self._object(uri)
        store = await self._store(place, caller)
        return Written(uri, await store.put(place.key, data, overwrite=overwrite))

    async def store(self, uri: str, caller: Caller) -> tuple[ObjectStore, str]:
        place = self._object(uri)
        return await self._store(place, caller), place.key

    async def list(self, uri: str, caller: Caller) -> AsyncGenerator[Entry, None]:
        place = _split(uri)
        store = await self._store(place, caller)
        async with closing(store.list(place.key)) as listed:
            async for found in listed:
                if not self._is_ours(place, found.key):
                    yield Entry(
                        uri=f"{place.root}{quote(found.key)}",
                        size_bytes=found.size,
                        modified_at=found.modified_at,
                        etag=found.etag,
                    )

    async def link(self, uri: str, caller: Caller, *, expires_in: timedelta) -> str:
        place = self._object(uri)
        store = await self._store(place, caller)
        if await store.head(place.key) is None:
            raise _missing(place)
        return await store.signed_url(place.key, expires_in=expires_in)

    def _object(self, uri: str) -> _Place:
        place = _split(uri)
        if not place.key:
            raise InvalidInput(f"'{_shown(place)}' names a bucket, not an object", hint=f"{place.root}path/to/object")
        if self._is_ours(place, place.key):
            raise AccessRefused(
                f"'{_shown(place)}' is in the store where this installation keeps its payloads",
                hint="use the noetl:// address of a payload or a result, or another prefix",
            )
        return place

    def _is_ours(self, place: _Place, key: str) -> bool:
        return any(
            (place.scheme, place.bucket) == (own.scheme, own.name)
            and (not own.prefix or f"{key}/".startswith(f"{own.prefix}/"))
            for own in self._own
        )

    async def _store(self, place: _Place, caller: Caller) -> ObjectStore:
        access, options = self._access(place, caller)
        wanted = (place.scheme, place.bucket, sorted(options.items()), sorted(access.credentials.items()))
        key = hashlib.sha256(msgspec.json.encode(wanted)).digest()
        if key not in self._open:
            if (access.options or caller.options) and not self._allow_link_local:
                await _check_endpoint(options.get("endpoint"))
            url = f"{place.scheme}://{place.bucket}"
            self._open[key] = await open_store(url, options, access.credentials, foreign=True)
            while len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)
        self._open.move_to_end(key)
        return self._open[key]

    def _access(self, place: _Place, caller: Caller) -> tuple[Access, dict[str, object]]:
        """Keys and options: those of the playbook first, then the credential's, then the settings'."""
        access = access_of(place.scheme, caller.auth)
        known = {field.name for field in msgspec.structs.fields(KINDS[place.scheme])}
        said = {**access.options, **{name: value for name, value in caller.options.items() if name in known}}
        if said.get("endpoint") and not access.credentials and not said.get("anonymous"):
            raise InvalidInput(
                f"'{_shown(place)}' is to be reached at an endpoint of its own, and there is no credential for it",
                hint="name one as auth: the credentials of this machine are not sent to an address from a playbook",
            )
        own = next((own for own in self._own if (own.scheme, own.name) == (place.scheme, place.bucket)), None)
        options = {**(own.options if own is not None else {}), **said}
        if place.account is not None:
            options["account"] = place.account
        return access, options


def bucket_of(url: str, options: Mapping[str, object]) -> Bucket | None:
    """The bucket in which an installation keeps something; None if it is no bucket."""
    if scheme_of(url) not in SCHEMES:
        return None
    place = _split(url)
    return Bucket(place.scheme, place.bucket, place.key.strip("/"), options)


def _split(uri: str) -> _Place:
    """Take an address apart. One that could carry a secret is not repeated in the error."""
    scheme = scheme_of(uri)
    try:
        parts = urlsplit(uri)
        has_port = parts.port is not None
    except ValueError:
        raise InvalidInput(f"this {scheme}:// address is not one", hint=f"write {scheme}://bucket/key") from None
    container, account = _container(scheme, parts)
    if parts.query or parts.fragment or has_port or parts.password is not None or (parts.username and not account):
        raise InvalidInput(
            f"the {scheme}:// address has a user, a port, a query or a fragment",
            hint="write bucket and key only, with ? and # in a key as %3F and %23; credentials are named by auth",
        )
    if not container:
        raise InvalidInput(f"the {scheme}:// address names no bucket", hint=f"write {scheme}://bucket/key")
    root = f"{scheme}://{parts.netloc}/"
    return _Place(SCHEMES[scheme], container, account, unquote(parts.path).removeprefix("/"), root)


def _container(scheme: str, parts: SplitResult) -> tuple[str, str | None]:
    """`abfs://container@account.dfs.core.windows.net/key` names the account too."""
    if scheme in ("abfs", "abfss") and parts.username:
        return parts.username, (parts.hostname or "").partition(".")[0]
    return parts.netloc, None


async def _check_endpoint(endpoint: object) -> None:
    """Refuse addresses that give out the identity of this machine. Settings may name any; playbooks may not."""
    if not isinstance(endpoint, str) or not (host := urlsplit(endpoint).hostname):
        return
    if not is_blocked_host(host):
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError:
            raise Unavailable(
                f"the endpoint '{host}' cannot be reached: its name cannot be resolved", hint="check it, and DNS"
            ) from None
        if not any(is_blocked_address(str(address[0])) for *_, address in found):
            return
    raise AccessRefused(
        f"the endpoint '{host}' is blocked: it is link-local or a metadata service",
        hint="use another, or allow such addresses with the setting tools.http_link_local",
    )


def _shown(place: _Place) -> str:
    return f"{place.root}{quote(place.key)}"


def _missing(place: _Place) -> NotFound:
    return NotFound(f"there is no object at '{_shown(place)}'", hint="check bucket and key; letters and case count")
