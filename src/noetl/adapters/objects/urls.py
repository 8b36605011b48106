"""From an address to a store: `file://`, `memory://`, `s3://`, `gs://` and `az://`, with options and credentials.

Options say how a store is reached and may be shown. Credentials are handed over apart from them, go to the client
library and nowhere else: no message repeats one. Without credentials the library looks where the provider's own
tools look: in the environment, then for the role of the machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from noetl.adapters.objects.clients import make_clients
from noetl.adapters.objects.cloud import CloudObjectStore
from noetl.adapters.objects.faults import Place, ask
from noetl.adapters.objects.filesystem import FilesystemObjectStore
from noetl.adapters.objects.options import AzureOptions, GoogleOptions, Options, S3Options, read_options, suggest
from noetl.errors import InvalidInput
from noetl.payloads.keys import check_key
from noetl.ports.objects import ObjectStore

__all__ = ["open_store"]

_BUCKETS: dict[str, type[Options]] = {"s3": S3Options, "gs": GoogleOptions, "az": AzureOptions}
_SCHEMES = ("file", "memory", *_BUCKETS)
_BUCKET_NAME = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._-]{1,221}")


async def open_store(
    url: str,
    options: Mapping[str, object] | None = None,
    credentials: Mapping[str, str] | None = None,
    *,
    foreign: bool = False,
) -> ObjectStore:
    """The store at `url`, after it has answered once.

    A `foreign` bucket is somebody's own: it is not asked before the first use, which may be all that the credentials
    allow, and nothing in it is swept. Raises InvalidInput if the url, an option or the form of the credentials is
    wrong, and Unavailable if the store cannot be reached or does not accept them.
    """
    parts = _split(url)
    if parts.scheme in _BUCKETS:
        store = await _open_bucket(parts, options or {}, credentials or {})
        return store if foreign else await store.open()
    for what, given in (("options", options), ("credentials", credentials)):
        if given:
            raise InvalidInput(f"{parts.scheme}:// takes no {what}", hint=f"remove {', '.join(sorted(given))}")
    return await (_open_directory(parts) if parts.scheme == "file" else _open_memory(parts))


async def _open_bucket(
    parts: SplitResult, given: Mapping[str, object], credentials: Mapping[str, str]
) -> CloudObjectStore:
    name, prefix = _bucket_and_prefix(parts)
    options = read_options(_BUCKETS[parts.scheme], given, f"{parts.scheme}://{name}")
    place = Place(
        url=f"{parts.scheme}://{name}",
        endpoint=options.endpoint,
        container="container" if parts.scheme == "az" else "bucket",
    )
    if options.anonymous and credentials:
        raise InvalidInput(f"credentials are given for {place}, which is to be used anonymously", hint="remove either")
    clients = await ask(place, None, make_clients, name, options, credentials)
    in_order = options.endpoint is None if options.lists_in_order is None else options.lists_in_order
    return CloudObjectStore(
        clients,
        place,
        prefix=prefix,
        create_only=options.create_only,
        lists_in_order=in_order,
        can_sign=_can_sign(parts.scheme, options, credentials),
    )


def _can_sign(scheme: str, options: Options, credentials: Mapping[str, str]) -> bool:
    """A bearer token of Google's and a signature of Azure's are not keys."""
    return not options.anonymous and (scheme, *credentials) not in (("gs", "token"), ("az", "sas_token"))


async def _open_directory(parts: SplitResult) -> FilesystemObjectStore:
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise InvalidInput(
            f"'file://{parts.netloc}{parts.path}' is no directory of this machine", hint="write file:///the/whole/path"
        )
    return await FilesystemObjectStore.open(Path(unquote(parts.path)))


async def _open_memory(parts: SplitResult) -> CloudObjectStore:
    if parts.netloc or parts.path.strip("/"):
        raise InvalidInput("objects in memory have no address", hint="write memory://")
    from obstore.store import MemoryStore

    return CloudObjectStore((MemoryStore(),), Place(url="memory://"), create_only="trusted", can_sign=False)


def _split(url: str) -> SplitResult:
    """The parts of a url of ours. One with a user or a query is refused unseen: that is where secrets stand."""
    try:
        parts = urlsplit(url)
        has_port = parts.port is not None
    except ValueError:
        raise InvalidInput(
            "the url of the object store is not a url", hint="write it like s3://bucket/prefix"
        ) from None
    if parts.scheme not in _SCHEMES:
        scheme = parts.scheme or "no scheme"
        raise InvalidInput(f"there is no object store for {scheme}", hint=suggest(parts.scheme, _SCHEMES))
    if parts.username is not None or parts.query or parts.fragment or has_port:
        raise InvalidInput(
            f"the {parts.scheme}:// url of the object store has a user, a port, a query or a fragment",
            hint="name bucket and prefix only; an endpoint is an option, credentials are given apart",
        )
    return parts


def _bucket_and_prefix(parts: SplitResult) -> tuple[str, str]:
    if not _BUCKET_NAME.fullmatch(parts.netloc):
        raise InvalidInput(
            f"'{parts.netloc}' is not the name of a bucket", hint=f"write it like {parts.scheme}://bucket/prefix"
        )
    prefix = unquote(parts.path).strip("/")
    return parts.netloc, check_key(prefix) if prefix else ""
