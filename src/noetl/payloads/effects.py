"""Effects that have happened: the outcome of a task, kept under a key that every delivery of its command derives.

A worker keeps an outcome here before it says a word about it, and looks here before it calls a tool. So a worker that
is given the command of one that was killed finds what that one has done, and does not do it again. The first outcome
that is durable is the one that counts, whoever else comes with another.

An object is JSON under zstd: `{"content": {...}, "sha256": ...}`, the digest being that of the content; a table follows
behind it as Feather. Whatever of it was changed is noticed, and then it is adopted by nobody.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from typing import Any, ParamSpec, TypeVar

import msgspec
import zstandard

from noetl.errors import IntegrityMismatch, InvalidInput, NotFound, Unavailable
from noetl.kernel import canonical
from noetl.kernel.event import Json
from noetl.kernel.lazy import LazyMapping
from noetl.kernel.names import Home, ResultCoordinates
from noetl.payloads.blocking import in_thread
from noetl.ports.objects import ObjectStore

__all__ = ["Effect", "EffectStore"]

P = ParamSpec("P")
T = TypeVar("T")

_LEVEL = 3
_LARGE = 1 << 18
"""From this size on, bytes are worked on beside the event loop."""
_PIECE = 1 << 20
_TRIES = 3


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What a task came to that has had its effect. It always went well: an error is nothing to keep."""

    result: Any = None
    extra: Json = {}
    attempt: int = 1
    duration_ms: int = 0


class EffectStore:
    """Outcomes by the coordinates of their tasks.

    A rule may have a task run again although it went well, as a poll does. Then one visit has several outcomes, and
    `turn` counts them: who goes through the pipeline again adopts them in the order in which they were kept.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    async def find(self, place: ResultCoordinates, home: Home, turn: int = 0) -> Effect | None:
        """The outcome that was kept; None if there is none. Raises IntegrityMismatch for one that is damaged."""
        key = _key(place, home, turn)
        try:
            data = await self._objects.get(key)
        except NotFound:
            return None
        return await _beside(len(data), _decode, key, place.effect_key(), data)

    async def keep(self, place: ResultCoordinates, home: Home, effect: Effect, turn: int = 0) -> Effect | None:
        """Make an outcome durable; the one that was there first, if there is one, else None.

        Raises NotCanonical for what is no JSON, and IntegrityMismatch if what was there first is damaged.
        """
        key, own = _key(place, home, turn), place.effect_key()
        size = _LARGE if isinstance(effect.result, LazyMapping) else 0
        content, table = await _beside(size, _content, own, effect)
        text = canonical.encode(content)
        data = await _beside(len(text), _document, text)
        for _ in range(_TRIES):
            if await self._objects.put(key, _pieces(data, table) if table else data):
                return None
            try:
                found = await self._objects.get(key)
            except NotFound:  # it was taken away between the two
                continue
            same = found == data + table
            return None if same else await _beside(len(found), _decode, key, own, found)
        raise Unavailable(f"object '{key}' comes and goes, and cannot be kept", hint="see who else deletes it")


def _key(place: ResultCoordinates, home: Home, turn: int) -> str:
    """The object of a turn. The first is the task's own; no visit of any task ends like those that follow."""
    key = place.effect_object_key(home)
    return key if turn == 0 else f"{key.removesuffix('.bin')}~{turn + 1}.bin"


# --- From an outcome to an object and back ----------------------------------------------------------------


def _content(effect_key: str, effect: Effect) -> tuple[Json, bytes]:
    said: Json = {
        "effect_key": effect_key,
        "extra": effect.extra,
        "attempt": effect.attempt,
        "duration_ms": effect.duration_ms,
    }
    if not isinstance(effect.result, LazyMapping):
        return {**said, "result": effect.result}, b""
    from noetl.payloads.formats import feather_pieces
    from noetl.payloads.tables import TableValue

    if not isinstance(effect.result, TableValue):
        return {**said, "result": effect.result.plain()}, b""
    table = b"".join(feather_pieces(effect.result.arrow))
    about = {"bytes": len(table), "sha256": hashlib.sha256(table).hexdigest(), "native": effect.result.native}
    return {**said, "table": about}, table


def _document(text: bytes) -> bytes:
    digest = hashlib.sha256(text).hexdigest().encode()
    return zstandard.compress(b'{"content":' + text + b',"sha256":"' + digest + b'"}', _LEVEL)


async def _pieces(data: bytes, table: bytes) -> AsyncIterator[bytes]:
    yield data
    for start in range(0, len(table), _PIECE):
        yield table[start : start + _PIECE]


def _decode(key: str, effect_key: str, data: bytes) -> Effect:
    try:
        reader = zstandard.ZstdDecompressor().decompressobj()
        document = canonical.decode(reader.decompress(data))
        if not reader.eof:
            raise _damaged(key, "it is cut off")
        content = document["content"]
        if hashlib.sha256(canonical.encode(content)).hexdigest() != document["sha256"]:
            raise _damaged(key, "its content does not have the sha256 that it names")
        if content["effect_key"] != effect_key:
            raise _damaged(key, f"it is the outcome of '{content['effect_key']}'")
        return Effect(
            result=_result(key, content, reader.unused_data),
            extra=content["extra"],
            attempt=content["attempt"],
            duration_ms=content["duration_ms"],
        )
    except (zstandard.ZstdError, InvalidInput, KeyError, TypeError) as error:
        raise _damaged(key, f"it cannot be read ({error})") from None


def _result(key: str, content: Json, rest: bytes) -> Any:
    about = content.get("table", {"bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()})
    if len(rest) != about["bytes"] or hashlib.sha256(rest).hexdigest() != about["sha256"]:
        raise _damaged(key, "the table behind it is another one")
    if "table" not in content:
        return content["result"]
    from noetl.payloads.formats import table_in
    from noetl.payloads.tables import TableValue

    return TableValue(table_in(rest), native=about["native"])


def _damaged(key: str, why: str) -> IntegrityMismatch:
    return IntegrityMismatch(
        f"the outcome of an effect is damaged in object '{key}': {why}",
        hint="restore it from a backup; or delete it, and the task runs again under the same effect key",
    )


async def _beside(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do it here, or in a thread where it would hold up others."""
    return work(*args, **kwargs) if size < _LARGE else await in_thread(work, *args, **kwargs)
