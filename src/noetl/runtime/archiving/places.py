"""Where bundles are kept, and how a bundle's address leads to it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from noetl.adapters.objects.filesystem import FilesystemObjectStore
from noetl.errors import InvalidSetting, NotFound
from noetl.ports.objects import ObjectStore
from noetl.runtime.home import Home
from noetl.runtime.stores import read_pairs
from noetl.settings import Settings

__all__ = ["ArchivePlace", "open_place", "open_uri", "uri_of"]


class ArchivePlace(NamedTuple):
    """A store and its address."""

    objects: ObjectStore
    url: str


async def open_place(home: Home, settings: Settings) -> ArchivePlace:
    """The store that the settings name, or the directory in the home. Raises InvalidSetting, Unavailable."""
    asked = settings.archive
    options = read_pairs("archive.options", asked.options)
    if asked.url is None:
        if options:
            raise InvalidSetting("archive.options is set, but not archive.url", hint="set archive.url too")
        return ArchivePlace(FilesystemObjectStore(home.archive), home.archive.absolute().as_uri())
    if settings.payloads.url is not None and asked.url.rstrip("/") == settings.payloads.url.rstrip("/"):
        raise InvalidSetting(
            "archive.url is that of payloads.url: noetl gc would take what is archived for results",
            hint="choose another bucket, or another prefix in it",
        )
    from noetl.adapters.objects.urls import open_store

    return ArchivePlace(await open_store(asked.url, options), asked.url.rstrip("/"))


def uri_of(url: str, prefix: str) -> str:
    """The address of what is under a prefix of a store."""
    return f"{url}/{quote(prefix, safe='/=')}/"


async def open_uri(uri: str, settings: Settings) -> tuple[ObjectStore, str]:
    """The store of a bundle, and the bundle's prefix there; `uri` may be a directory of this machine, too.

    Nothing is created. The options of `archive.options` hold for stores of the technology that `archive.url` has.
    Raises NotFound for a directory that is not there.
    """
    if "://" not in uri or uri.startswith("file://"):
        path = Path(unquote(urlsplit(uri).path)) if uri.startswith("file://") else Path(uri)
        if not await asyncio.to_thread(path.is_dir):
            raise NotFound(f"there is no directory {path}", hint="noetl archive list shows what is archived")
        return FilesystemObjectStore(path), ""
    from noetl.adapters.objects.urls import open_store

    own = settings.archive.url
    alike = own is not None and urlsplit(own).scheme == urlsplit(uri).scheme
    options = read_pairs("archive.options", settings.archive.options) if alike else {}
    return await open_store(uri, options, foreign=True), ""
