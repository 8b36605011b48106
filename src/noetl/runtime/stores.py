"""The object stores of an installation, as its settings name them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

import msgspec

from noetl.adapters.objects.filesystem import FilesystemObjectStore
from noetl.errors import InvalidSetting
from noetl.payloads.routes import CLOUD_SCHEMES
from noetl.ports.objects import ObjectStore
from noetl.runtime.home import Home
from noetl.settings import Settings

__all__ = ["is_on_this_disk", "open_objects", "open_replica", "read_pairs"]


async def open_objects(home: Home, settings: Settings) -> ObjectStore:
    """The store that the settings name, or the directory in the home; encrypted if they say so.

    Raises InvalidSetting, Unavailable.
    """
    store = _with_routes(await _open_plain(home, settings), settings)
    if not settings.payloads.encrypt:
        return store
    from noetl.adapters.objects.encrypted import EncryptedObjectStore
    from noetl.tools.secrets.wallet import payload_keys

    return EncryptedObjectStore(store, payload_keys(home.wallet, os.environ))


async def open_replica(home: Home, settings: Settings) -> ObjectStore | None:
    """The copy of the store that the settings name; None if they name none. Raises InvalidSetting, Unavailable."""
    payloads = settings.payloads
    if payloads.replica is None:
        return None
    there = msgspec.structs.replace(payloads, url=payloads.replica, options=payloads.replica_options, routes=())
    return await open_objects(home, msgspec.structs.replace(settings, payloads=there))


async def _open_plain(home: Home, settings: Settings) -> ObjectStore:
    payloads = settings.payloads
    options = read_pairs("payloads.options", payloads.options)
    if payloads.url is None:
        if options and not payloads.routes:
            raise InvalidSetting("payloads.options is set, but not payloads.url", hint="set payloads.url too")
        return FilesystemObjectStore(home.payloads)
    from noetl.adapters.objects.urls import open_store

    return await open_store(payloads.url, options)


def _with_routes(own: ObjectStore, settings: Settings) -> ObjectStore:
    """The store with the routes to others that the settings name. The options are for those of its own technology."""
    payloads = settings.payloads
    routes = read_pairs("payloads.routes", payloads.routes)
    if not routes:
        return own
    from noetl.adapters.objects.routed import RoutedObjectStore
    from noetl.adapters.objects.urls import open_store

    options = read_pairs("payloads.options", payloads.options)
    for kind in routes:
        if kind not in CLOUD_SCHEMES:
            raise InvalidSetting(
                f"payloads.routes: '{kind}' is no store kind that leads elsewhere",
                hint=f"routes are for {', '.join(CLOUD_SCHEMES)}",
            )
    alike = [url for url in routes.values() if payloads.url is None or _scheme(url) == _scheme(payloads.url)]
    return RoutedObjectStore(
        own, {kind: partial(open_store, url, options if url in alike else None) for kind, url in routes.items()}
    )


def _scheme(url: str) -> str:
    return url.partition("://")[0]


def is_on_this_disk(settings: Settings) -> bool:
    """Whether payloads are kept on a disk of this machine, or in this process: then copies on disk are of no use."""
    url = settings.payloads.url
    return url is None or url.startswith(("file:", "memory:"))


def read_pairs(setting: str, items: Sequence[str]) -> dict[str, str]:
    """The `name=value` texts of a setting by name. Raises InvalidSetting."""
    pairs = [item.partition("=") for item in items]
    for name, equals, _ in pairs:
        if not equals:
            raise InvalidSetting(f"{setting}: '{name}' has no value", hint="write it as name=value")
    return {name.strip(): value.strip() for name, _, value in pairs}
