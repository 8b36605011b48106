"""What is too large for an event goes to the payload store; the event keeps what folds and routing read."""

from __future__ import annotations

from typing import Any

import msgspec

from noetl.kernel import canonical
from noetl.kernel.event import MAX_VALUE_BYTES, Json, PayloadRef
from noetl.payloads.store import PayloadStore
from noetl.runtime.storage import INLINE_BYTES

__all__ = [
    "REFERENCE",
    "VALUES",
    "VALUES_BYTES",
    "externalize",
    "externalize_values",
    "resolve_values",
]

REFERENCE = "$ref"
VALUES = ("set", "ctx", "workload")
"""Parts of a payload whose values are stored one by one, each where it is too large."""
VALUES_BYTES = 32 * 1024
_LOOKS = f'"{REFERENCE}":'.encode()
_MOST_REFERENCES = 64


async def externalize(payload: Json, large: tuple[str, ...], store: PayloadStore) -> tuple[Json, PayloadRef | None]:
    """The payload as it fits an event, and where the rest is, if there is any rest.

    Only keys named in `large` may move. They move together into one JSON object, so one reference per
    event is enough. A result is not among them: it has an object of its own, in a place of its own.
    """
    movable = {name: payload[name] for name in large if name in payload}
    if not movable or len(canonical.encode(payload)) <= INLINE_BYTES:
        return payload, None
    ref = await store.store(canonical.encode(movable), media_type="application/json")
    return {name: value for name, value in payload.items() if name not in movable}, ref


async def externalize_values(payload: Json, store: PayloadStore) -> Json:
    """The payload with each large value of `set`, `ctx` and workload replaced by its reference.

    A fold keeps the reference as the value; whoever needs the value itself asks `resolve_values`. Many
    small values can be too much together: then the largest of them go, too.
    """
    for group in VALUES:
        values = payload.get(group)
        if values and group == "ctx" and _is_many(values):
            payload = {**payload, group: await _reference(canonical.encode(values), store)}
        elif values:
            payload = {**payload, group: await _lightened(values, store)}
    return payload


async def resolve_values(value: Any, store: PayloadStore) -> Any:
    """The same value with every reference in it replaced by what it stands for."""
    if isinstance(value, dict):
        if value.keys() == {REFERENCE}:
            ref = msgspec.convert(value[REFERENCE], PayloadRef)
            return canonical.decode(await store.fetch(ref))
        return {name: await resolve_values(item, store) for name, item in value.items()}
    if isinstance(value, list):
        return [await resolve_values(item, store) for item in value]
    return value


async def _lightened(values: Json, store: PayloadStore) -> Json:
    """A value of a user's that has the looks of a reference is stored as well: it must come back as it was."""
    encoded = {name: canonical.encode(value) for name, value in values.items()}
    total = sum(map(len, encoded.values()))
    kept = dict(values)
    for name, data in sorted(encoded.items(), key=lambda item: -len(item[1])):
        if len(data) > MAX_VALUE_BYTES or total > VALUES_BYTES or _LOOKS in data:
            kept[name] = await _reference(data, store)
            total -= len(data)
    return kept


def _is_many(ctx: Json) -> bool:
    """A fork starts with all that its source has gathered: more than has room in an event, even as references."""
    return ctx.keys() == {REFERENCE} or (len(ctx) > _MOST_REFERENCES and len(canonical.encode(ctx)) > VALUES_BYTES)


async def _reference(data: bytes, store: PayloadStore) -> Json:
    return {REFERENCE: msgspec.to_builtins(await store.store(data, media_type="application/json"))}
