"""artifact: read or write one stored object by its address (DSL 9.11).

Files are handled here. Every other address belongs to a store that whoever wires the tool brings along, as two
functions: what they raise (`NotFound`, `StorageFull`, `Unavailable`) says which error the task gets.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import io
import os
import tempfile
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import zstandard

from noetl.errors import NotFound, StorageFull, Unavailable
from noetl.kernel.event import Json
from noetl.payloads.blocking import in_thread, storage_errors
from noetl.tools.base import Call, Outcome, Rendering, failed, ok
from noetl.tools.values import BadField, Refused, decoded_json, truth

__all__ = ["ArtifactTool", "Resolve", "Store"]

Resolve = Callable[[str, Call], Awaitable[Any]]
"""What is at an address: bytes as they are stored, or a value that is already decoded."""
Store = Callable[[str, bytes, Call], Awaitable[str]]
"""Keep bytes at an address; returns the address they can be read from."""

FILE = "file://"
STORED = ("noetl://", "s3://", "gs://")
_ZSTD, _GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"
_MOST_BYTES = 256 << 20


class TooLarge(Exception):
    """More than the tool may hold."""


class ArtifactTool:
    """Gets and puts. Files must lie below the task's directory, the execution's scratch or one of `roots`."""

    kind = "artifact"
    rendering: Mapping[str, Rendering] = {}
    required: tuple[tuple[str, ...], ...] = (("action",),)

    def __init__(
        self,
        *,
        resolve: Resolve | None = None,
        store: Store | None = None,
        schemes: tuple[str, ...] = STORED,
        roots: Sequence[Path] = (),
        max_bytes: int = _MOST_BYTES,
    ) -> None:
        """`schemes` are the addresses that `resolve` and `store` know."""
        self._schemes = schemes
        self._resolve = resolve
        self._store = store
        self._roots = tuple(roots)
        self._max_bytes = max_bytes

    def side_effecting(self, fields: Json) -> bool:
        """Only a get is harmless; an action that is not known yet might be a put."""
        return fields.get("action") != "get"

    async def run(self, call: Call) -> Outcome:
        """Read or write."""
        asked = {**call.input, **{name: value for name, value in call.fields.items() if value is not None}}
        try:
            if asked.get("action") == "get":
                return await self._get(call, asked)
            if asked.get("action") == "put":
                return await self._put(call, asked)
            raise BadField(f"action must be get or put, not '{asked.get('action')}'")
        except Refused as error:
            return error.outcome
        except NotFound as error:
            return failed("missing_reference", "REFERENCE_NOT_AVAILABLE", str(error))
        except (StorageFull, TooLarge) as error:
            return failed("storage_quota", "STORAGE_FULL", str(error))
        except Unavailable as error:
            return failed("storage_access", "STORAGE_UNAVAILABLE", str(error))

    async def close(self) -> None:
        """Nothing to let go of."""

    async def _get(self, call: Call, asked: Json) -> Outcome:
        uri, digest = _reference(asked)
        found = await self._fetch(uri, call)
        if not isinstance(found, bytes):
            size = len(msgspec.json.encode(found))
            return ok({**_top(found), "data": found, "uri": uri, "size_bytes": size, "compressed": False})
        content, compressed = await in_thread(_unpacked, found, self._max_bytes)
        if digest and hashlib.sha256(content).hexdigest() != digest:
            return failed("storage_access", "DIGEST_MISMATCH", f"{uri} is not what its reference says: it was changed")
        value, encoding = _decoded(content, uri)
        result = {"data": value, "uri": uri, "size_bytes": len(content), "compressed": compressed, **encoding}
        return ok({**_top(value), **result})

    async def _put(self, call: Call, asked: Json) -> Outcome:
        uri = asked.get("uri")
        if not uri or "data" not in asked:
            raise BadField("a put needs uri and data", code="FIELD_MISSING")
        content = _encoded(asked["data"])
        packing = _packing(str(uri), asked)
        stored = await in_thread(_packed, content, packing)
        where = await self._keep(str(uri), stored, call)
        return ok(
            {
                "uri": where,
                "size_bytes": len(content),
                "sha256": hashlib.sha256(content).hexdigest(),
                "compressed": bool(packing),
                "stored_bytes": len(stored),
            }
        )

    async def _fetch(self, uri: str, call: Call) -> Any:
        if uri.startswith(FILE):
            path = await in_thread(self._path, uri, call)
            return await in_thread(_read, path, uri, self._max_bytes)
        if self._resolve is None or not uri.startswith(self._schemes):
            raise _no_store(uri)
        return await self._resolve(uri, call)

    async def _keep(self, uri: str, stored: bytes, call: Call) -> str:
        if uri.startswith(FILE):
            path = await in_thread(self._path, uri, call)
            await in_thread(_write, path, stored)
            return uri
        if self._store is None or not uri.startswith(self._schemes):
            raise _no_store(uri)
        return await self._store(uri, stored, call)

    def _path(self, uri: str, call: Call) -> Path:
        """The file of an address, with every link followed. Outside the roots there is nothing to read or write."""
        text = unquote(uri[len(FILE) :])
        if text.startswith("localhost/"):
            text = text.removeprefix("localhost")
        if not text or "\0" in text:
            raise BadField(f"'{uri}' names no file")
        path = (call.directory / text).resolve()
        roots = [root.resolve() for root in (call.directory, call.scratch, *self._roots)]
        if not any(path.is_relative_to(root) for root in roots):
            raise Unavailable(f"'{uri}' is outside of the directories that this task may use")
        return path


def _reference(asked: Json) -> tuple[str, str]:
    """Address and digest of what is wanted."""
    given = asked.get("result_ref") if asked.get("result_ref") is not None else asked.get("uri")
    if isinstance(given, str) and given.lstrip().startswith("{"):
        given = _json(given)
    if isinstance(given, Mapping) and given.get("_ref") is not None:
        given = given["_ref"]
    digest = ""
    if isinstance(given, Mapping):
        meta = given.get("meta")
        digest = str(meta.get("sha256") or "") if isinstance(meta, Mapping) else ""
        given = given.get("uri") or given.get("ref")
    if given is None or given == "":
        raise BadField("a get needs result_ref or uri", code="FIELD_MISSING")
    if not isinstance(given, str):
        raise BadField("result_ref must be a reference or its address")
    return given.strip(), digest


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise BadField(f"result_ref is not a reference: {error}", kind="parse") from None


def _no_store(uri: str) -> Exception:
    if uri.startswith(STORED):
        scheme = uri.partition(":")[0]
        message = f"'{uri}' cannot be reached: it needs an object store for {scheme}://, and none is configured here"
        return Refused(failed("storage_access", "KIND_UNAVAILABLE", message))
    return BadField(f"'{uri}' is not an address: use one of {', '.join((FILE, *STORED))}")


def _top(value: Any) -> Json:
    return dict(value) if isinstance(value, Mapping) else {}


# --- Content ----------------------------------------------------------------------------------------------


def _encoded(data: Any) -> bytes:
    """Text as it is, everything else as JSON."""
    try:
        return data.encode() if isinstance(data, str) else msgspec.json.encode(data)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadField(f"data cannot be written: {error}") from None


def _decoded(content: bytes, uri: str) -> tuple[Any, Json]:
    """A value where it is JSON, else text; base64, and a word that says so, for bytes that are neither."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return base64.b64encode(content).decode("ascii"), {"encoding": "base64"}
    says_json = "json" in uri.lower().rpartition("/")[2].split(".")[1:]
    looks_json = text.lstrip()[:1] in ("{", "[")
    return (decoded_json(text) if says_json or looks_json else text), {}


def _packing(uri: str, asked: Json) -> str:
    given = asked.get("compress")
    if given in ("zstd", "gzip"):
        return str(given)
    if not truth({"compress": given}, "compress", default=True):
        return ""
    return "gzip" if uri.endswith(".gz") else "zstd"


def _packed(content: bytes, packing: str) -> bytes:
    if packing == "zstd":
        return zstandard.ZstdCompressor().compress(content)
    return gzip.compress(content, mtime=0) if packing == "gzip" else content


def _unpacked(stored: bytes, limit: int) -> tuple[bytes, bool]:
    """The content, and whether it was compressed. A small object may unpack to more than we can hold."""
    if not stored.startswith((_ZSTD, _GZIP)):
        return stored, False
    source = io.BytesIO(stored)
    try:
        if stored.startswith(_ZSTD):
            content = zstandard.ZstdDecompressor().stream_reader(source, read_across_frames=True).read(limit + 1)
        else:
            content = gzip.GzipFile(fileobj=source).read(limit + 1)
    except (zstandard.ZstdError, zlib.error, OSError, EOFError, binascii.Error):
        return stored, False  # it only begins like one
    if len(content) > limit:
        raise TooLarge(f"the content is larger than {limit} bytes")
    return content, True


# --- Files ------------------------------------------------------------------------------------------------


def _read(path: Path, uri: str, limit: int) -> bytes:
    if not path.exists():
        raise NotFound(f"'{uri}' does not exist")
    if not path.is_file():
        raise Unavailable(f"'{uri}' is not a file")
    with storage_errors(path), path.open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise TooLarge(f"'{uri}' is larger than {limit} bytes")
    return content


def _write(path: Path, content: bytes) -> None:
    """All of it or none: a reader never sees half a file, not even after a crash."""
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
