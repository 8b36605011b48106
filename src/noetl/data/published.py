"""Objects below an address in a bucket that belong together, as manifests beside them say.

A bucket has no rename, so what a task writes becomes visible by a manifest: its objects are put first, under keys that
nobody else uses, and then one more that names them. Manifests are numbered, and none is ever changed: `append` adds its
objects to those before, `overwrite` takes their place. Who reads by the manifests sees all objects of a task or none.
Of two manifests of one task, which a killed attempt and the next may leave, the first counts.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from noetl.data.sinks.written import FileWritten
from noetl.errors import Corruption, InvalidInput, NoetlError
from noetl.kernel.event import Json
from noetl.payloads.blocking import in_thread
from noetl.ports.objects import ObjectStore

__all__ = ["FOLDER", "Manifest", "Published"]

FOLDER = "_noetl"
_NAME = re.compile(r"(\d{12})-(\w+)-([0-9a-f]+)\.json")
_DIGITS = 16
_AT_ONCE = 4
_PIECE = 1 << 20
_log = logging.getLogger(__name__)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What one task has written, and what it has said of it: a second delivery says the same."""

    mark: str
    mode: str
    form: str
    rows: int
    bytes: int
    files: tuple[FileWritten, ...]
    columns: list[Json] = []
    expect: list[Json] = []
    preview: list[Any] = []


class _Entry(msgspec.Struct, frozen=True, order=True):
    number: int
    name: str
    mode: str
    mark: str


class Published:
    """The objects below a key of a store."""

    def __init__(self, store: ObjectStore, key: str, uri: str) -> None:
        self._store = store
        self._key = key.strip("/")
        self.uri = uri

    async def files(self) -> tuple[FileWritten, ...] | None:
        """What is to be read; None if nobody has published anything here. Raises Corruption."""
        entries = await self._entries()
        if not entries:
            return None
        overwrites = [place for place, entry in enumerate(entries) if entry.mode != "append"]
        found: list[FileWritten] = []
        for entry in entries[overwrites[-1] if overwrites else 0 :]:
            found += (await self._read(entry)).files
        return tuple(found)

    async def known(self, mark: str) -> Manifest | None:
        """What a task has published already."""
        for entry in await self._entries():
            if entry.mark == mark:
                return await self._read(entry)
        return None

    async def is_taken(self, mode: str) -> bool:
        """Whether something is there and `mode` is to leave it. Raises InvalidInput where that is an error, and for
        objects that no manifest names: those who read by the manifests would not see them any more."""
        if await self._entries():
            taken = bool(await self.files())
        else:
            taken = await anext(aiter(self._store.list(f"{self._key}/")), None) is not None
            if taken and mode in ("append", "overwrite"):
                raise InvalidInput(
                    f"output.path: {self.uri} has objects that no spark task has written",
                    hint="choose a prefix of its own, or remove them",
                )
        if taken and mode == "error":
            raise InvalidInput(
                f"output: {self.uri} has objects already", hint="choose mode append, overwrite or ignore"
            )
        return taken and mode == "ignore"

    async def publish(self, manifest: Manifest, folder: Path) -> Manifest:
        """Put the files of a directory there, and name them. What another attempt has published holds instead."""
        files = tuple(_named(file) for file in manifest.files)
        limit = asyncio.Semaphore(_AT_ONCE)

        async def put(file: FileWritten, path: Path) -> None:
            async with limit:
                await self._store.put(f"{self._key}/{file.path}", _pieces(path))  # taken: the same bytes are there

        try:
            async with asyncio.TaskGroup() as group:
                for file, old in zip(files, manifest.files, strict=True):
                    group.create_task(put(file, folder / old.path))
        except* NoetlError as problems:
            raise problems.exceptions[0] from None
        manifest = msgspec.structs.replace(manifest, files=files)
        before = await self._entries()
        if any(entry.mark == manifest.mark for entry in before):
            return await self.known(manifest.mark) or manifest
        replaced = () if manifest.mode == "append" else await self.files() or ()
        number = 1 + (before[-1].number if before else 0)
        name = f"{number:012d}-{manifest.mode}-{manifest.mark}.json"
        await self._store.put(f"{self._key}/{FOLDER}/{name}", msgspec.json.encode(manifest))
        await self._tidy(manifest, replaced)
        return manifest

    async def _tidy(self, manifest: Manifest, replaced: tuple[FileWritten, ...]) -> None:
        """Remove what nobody is to read any more. It is written: what cannot be removed is only in the way."""
        kept = {file.path for file in manifest.files}
        try:
            for file in replaced:
                await self._store.delete(f"{self._key}/{file.path}")
            for place in {str(PurePosixPath(path).parent) for path in kept}:
                below = self._key if place == "." else f"{self._key}/{place}"
                async for found in self._store.list(f"{below}/part-{manifest.mark}-"):
                    if found.key.removeprefix(f"{self._key}/") not in kept:
                        await self._store.delete(found.key)
        except NoetlError as error:
            _log.warning("objects that were replaced below %s could not be removed: %s", self.uri, error)

    async def _entries(self) -> list[_Entry]:
        """The manifests in order, the first of each task."""
        found: dict[str, _Entry] = {}
        async for info in self._store.list(f"{self._key}/{FOLDER}/"):
            name = info.key.rpartition("/")[2]
            if told := _NAME.fullmatch(name):
                found.setdefault(told[3], _Entry(int(told[1]), name, told[2], told[3]))
        return sorted(found.values())

    async def _read(self, entry: _Entry) -> Manifest:
        try:
            found = msgspec.json.decode(await self._store.get(f"{self._key}/{FOLDER}/{entry.name}"), type=Manifest)
        except msgspec.MsgspecError as error:
            raise Corruption(f"{self.uri}/{FOLDER}/{entry.name} is no manifest: {error}") from None
        for file in found.files:
            if PurePosixPath(file.path).is_absolute() or ".." in PurePosixPath(file.path).parts:
                raise Corruption(f"{self.uri}/{FOLDER}/{entry.name} names '{file.path}', which is elsewhere")
        return found


def _named(file: FileWritten) -> FileWritten:
    """Under a name that has its digest: two attempts of a task may divide their rows in different ways."""
    path = PurePosixPath(file.path)
    stem, dot, ending = path.name.partition(".")
    return msgspec.structs.replace(file, path=str(path.with_name(f"{stem}-{file.sha256[:_DIGITS]}{dot}{ending}")))


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while piece := await in_thread(file.read, _PIECE):
            yield piece
