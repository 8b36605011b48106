"""artifact: read, write or list stored objects by their address (DSL 9.11).

Addresses are followed by the resolver that comes with the call; what it raises says which error the task gets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import msgspec

from noetl.errors import AccessRefused, Conflict, Corruption, InvalidInput, NoetlError, NotFound, StorageFull
from noetl.kernel.event import Json
from noetl.kernel.lazy import plain
from noetl.payloads.blocking import in_thread
from noetl.payloads.files import Files
from noetl.payloads.resolver import Entry, Resolver, TooLarge
from noetl.tools.base import Call, Outcome, Rendering, failed, ok
from noetl.tools.content import decoded, encoded, packed, packing_of, unpacked
from noetl.tools.values import BadField, Refused, truth

__all__ = ["ArtifactTool"]

_MOST_BYTES = 256 << 20
_LISTED = 1000
_MOST_LISTED = 100_000
_FILES_ONLY = Resolver({"file": Files})


class ArtifactTool:
    """Gets, puts and lists. Without a resolver of the call's own it knows files only."""

    kind = "artifact"
    rendering: Mapping[str, Rendering] = {}
    required: tuple[tuple[str, ...], ...] = (("action",),)

    def __init__(self, *, max_bytes: int = _MOST_BYTES) -> None:
        self._max_bytes = max_bytes

    def side_effecting(self, fields: Json) -> bool:
        """Reading is harmless; an action that is not known yet might be a put."""
        return fields.get("action") not in ("get", "list")

    async def run(self, call: Call) -> Outcome:
        """Do what `action` says."""
        asked = {**call.input, **{name: value for name, value in call.fields.items() if value is not None}}
        actions = {"get": self._get, "put": self._put, "list": self._list}
        try:
            action = actions.get(str(asked.get("action")))
            if action is None:
                raise BadField(f"action must be get, put or list, not '{asked.get('action')}'")
            return await action(call, asked)
        except Refused as error:
            return error.outcome
        except NoetlError as error:
            return _explained(error)

    async def close(self) -> None:
        """Nothing to let go of."""

    async def _get(self, call: Call, asked: Json) -> Outcome:
        uri, digest = _reference(asked)
        found = await _resolver(call).read(uri, call.caller(call.auth), limit=self._max_bytes)
        if not isinstance(found, bytes):
            value = plain(found)
            size = len(msgspec.json.encode(value))
            return ok({**_top(value), "data": value, "uri": uri, "size_bytes": size, "compressed": False})
        content, compressed = await in_thread(unpacked, found, self._max_bytes)
        if digest and digest not in await in_thread(_digests, content, found):
            return failed("storage_access", "DIGEST_MISMATCH", f"{uri} is not what its reference says: it was changed")
        value, encoding = decoded(content, uri)
        result = {"data": value, "uri": uri, "size_bytes": len(content), "compressed": compressed, **encoding}
        return ok({**_top(value), **result})

    async def _put(self, call: Call, asked: Json) -> Outcome:
        uri = asked.get("uri")
        if not uri or "data" not in asked:
            raise BadField("a put needs uri and data", code="FIELD_MISSING")
        content = encoded(plain(asked["data"]))
        packing = packing_of(str(uri), asked)
        overwrite = truth(asked, "overwrite", default=True)
        stored = await in_thread(packed, content, packing)
        written = await _resolver(call).write(str(uri), stored, call.caller(call.auth), overwrite=overwrite)
        if not written.created:
            await self._check_same(written.uri, content, call)
        result = {
            "uri": written.uri,
            "size_bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "compressed": bool(packing),
            "stored_bytes": len(stored),
        }
        return ok(result if overwrite else {**result, "created": written.created})

    async def _check_same(self, uri: str, content: bytes, call: Call) -> None:
        """A task that is delivered twice finds what it has put itself: that is no conflict."""
        try:
            there = await _resolver(call).read(uri, call.caller(call.auth), limit=self._max_bytes)
            same = isinstance(there, bytes) and (await in_thread(unpacked, there, self._max_bytes))[0] == content
        except TooLarge:
            same = False
        if not same:
            raise BadField(
                f"'{uri}' holds something else, and overwrite is false: choose another name, or let it be replaced",
                kind="storage_access",
                code="OBJECT_EXISTS",
            )

    async def _list(self, call: Call, asked: Json) -> Outcome:
        uri, limit = asked.get("uri"), _limit(asked)
        if not uri or not isinstance(uri, str):
            raise BadField("a list needs uri", code="FIELD_MISSING")
        found: list[Entry] = []
        async with aclosing(_resolver(call).list(uri, call.caller(call.auth))) as entries:
            async for entry in entries:
                found.append(entry)
                if len(found) > limit:
                    break
        objects = msgspec.to_builtins(found[:limit])
        return ok({"uri": uri, "objects": objects, "count": len(objects), "truncated": len(found) > limit})


def _resolver(call: Call) -> Resolver:
    return call.resolver or _FILES_ONLY


def _explained(error: NoetlError) -> Outcome:
    """The error of a task (DSL 7.3 and 9.11). What only time has to change may be retried."""
    if isinstance(error, NotFound):
        return failed("missing_reference", "REFERENCE_NOT_AVAILABLE", str(error))
    if isinstance(error, StorageFull | TooLarge):
        return failed("storage_quota", "STORAGE_FULL", str(error))
    if isinstance(error, AccessRefused):
        return failed("storage_access", "ACCESS_REFUSED", str(error))
    if isinstance(error, Corruption):
        return failed("storage_access", "DIGEST_MISMATCH", str(error))
    if isinstance(error, InvalidInput):
        return failed("schema", "FIELD_INVALID", str(error))
    if isinstance(error, Conflict):
        return failed("storage_access", "OBJECT_CHANGED", str(error), retryable=True)
    return failed("storage_access", "STORAGE_UNAVAILABLE", str(error), retryable=True)


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


def _limit(asked: Json) -> int:
    given = asked.get("limit", _LISTED)
    if isinstance(given, str) and given.isdecimal():
        given = int(given)
    if isinstance(given, bool) or not isinstance(given, int) or not 0 < given <= _MOST_LISTED:
        raise BadField(f"limit must be a number from 1 to {_MOST_LISTED}")
    return given


def _digests(*forms: bytes) -> tuple[str, ...]:
    """A reference may mean the content, or the bytes as they are stored."""
    return tuple(hashlib.sha256(form).hexdigest() for form in forms)


def _top(value: Any) -> Json:
    return dict(value) if isinstance(value, Mapping) else {}
