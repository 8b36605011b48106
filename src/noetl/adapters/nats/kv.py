"""Shared values in a bucket of JetStream."""

from __future__ import annotations

import functools
import math
import uuid
from collections.abc import AsyncIterator, Sequence

import nats.js.errors
from nats.js import JetStreamContext, api

from noetl.adapters.nats.connection import Connection
from noetl.adapters.nats.pull import Pull, place_of
from noetl.adapters.nats.scan import open_scan, scan
from noetl.errors import Conflict, Unavailable
from noetl.kernel.names import event_stream
from noetl.ports.kv import NEW, Entry, changes_between

__all__ = ["NatsKv"]

_NO_STREAM, _OTHER_CONFIGURATION = 10059, 10058
_WRONG_LAST = frozenset({10071, 10164})
_GONE = ("KV-Operation", "Nats-Marker-Reason")
_MARKER_SECONDS = 60.0
_TRIES = 5
_WAIT_SECONDS = 5.0


class NatsKv:
    """One bucket for a region, as `nats kv` shows it; a key is spelled so that any text is one."""

    def __init__(self, connection: Connection, *, region: str = "local", replicas: int = 1) -> None:
        event_stream(region, 0)  # refuses what cannot stand in a name
        self._connection = connection
        self._bucket = f"noetl_{region}"
        self._replicas = replicas
        self._stream = f"KV_{self._bucket}"
        self._made = False

    async def get(self, key: str) -> Entry | None:
        """The value of a key."""
        await self._ensure()
        found = await self._last(key)
        return None if found is None or found.value is None else found

    async def put(self, key: str, value: bytes, *, expected: int | None = None, seconds: float | None = None) -> int:
        """Set a value; JetStream compares the revision."""
        await self._ensure()
        headers = {} if seconds is None else {"Nats-TTL": f"{max(1, math.ceil(seconds))}s"}
        revision = await self._write(key, value, headers, expected)
        if revision is None:
            raise await self._conflict(key, expected)
        return revision

    async def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Take a value away; a marker takes its place for a while, for those who watch."""
        for _ in range(_TRIES):
            found = await self.get(key)
            actual = NEW if found is None else found.revision
            if expected is not None and expected != actual:
                raise await self._conflict(key, expected)
            if found is None:
                return False
            headers = {"KV-Operation": "DEL", "Nats-TTL": f"{int(_MARKER_SECONDS)}s"}
            if await self._write(key, b"", headers, actual) is not None:
                return True
        raise await self._conflict(key, expected)

    async def list(self, prefix: str = "") -> Sequence[Entry]:
        """Values by prefix."""
        await self._ensure()
        found = []
        async for message in scan(self._connection, self._stream):
            entry = self._entry(message.subject, message.data, message.headers, place_of(message.reply).seq)
            if entry.value is not None and entry.key.startswith(prefix):
                found.append(entry)
        return sorted(found, key=lambda entry: entry.key)

    async def watch(self, prefix: str = "") -> AsyncIterator[Entry]:
        """What there is, and what changes; after a lost connection what has changed meanwhile."""
        known: dict[str, Entry] = {}
        while True:
            # Opened before the values are read, so that no change falls between the two.
            await self._ensure()
            pull, _ = await open_scan(self._connection, self._stream, deliver_policy=api.DeliverPolicy.NEW)
            now = {entry.key: entry for entry in await self.list(prefix)}
            for entry in changes_between(known, now):
                yield entry
            known = now
            try:
                async for entry in self._follow(pull, prefix):
                    before = known.get(entry.key)
                    if before is not None and before.revision >= entry.revision:
                        continue
                    if entry.value is not None:
                        known[entry.key] = entry
                        yield entry
                    elif known.pop(entry.key, None) is not None:
                        yield entry
            except Unavailable:
                self._made = False
                await self._connection.ready()

    async def _follow(self, pull: Pull, prefix: str) -> AsyncIterator[Entry]:
        while True:
            for message in await pull.fetch(100, _WAIT_SECONDS):
                entry = self._entry(message.subject, message.data, message.headers, place_of(message.reply).seq)
                if entry.key.startswith(prefix):
                    yield entry

    async def _write(self, key: str, value: bytes, headers: dict[str, str], expected: int | None) -> int | None:
        """The new revision, or None if the key is not where it was expected to be."""
        last = expected
        for _ in range(_TRIES):
            # With an id of its own a write that is sent again over a new connection is known to be the same.
            own = {**headers, "Nats-Msg-Id": uuid.uuid4().hex}
            if last is not None:
                own["Nats-Expected-Last-Subject-Sequence"] = str(last)
            with self._connection.explained(f"setting '{key}'"):
                try:
                    stored = await self._connection.call(functools.partial(_publish, self._subject(key), value, own))
                    return stored.seq
                except nats.js.errors.NoStreamResponseError:
                    self._made = False
                    await self._ensure()
                    continue
                except nats.js.errors.APIError as error:
                    if error.err_code not in _WRONG_LAST:
                        raise
            found = await self._last(key)
            if expected != NEW or found is None or found.value is not None:
                return None
            last = found.revision  # only a marker is there, which counts as nothing
        return None

    async def _last(self, key: str) -> Entry | None:
        """What stands for a key now, which may be a marker without a value."""
        with self._connection.explained(f"reading '{key}'"):
            try:
                found = await self._connection.call(
                    lambda streams: streams.get_last_msg(self._stream, self._subject(key), direct=False)
                )
            except nats.js.errors.NotFoundError as error:
                if error.err_code == _NO_STREAM:
                    self._made = False
                return None
        return self._entry(found.subject or "", found.data or b"", found.headers, found.seq or 0)

    async def _conflict(self, key: str, expected: int | None) -> Conflict:
        found = await self._last(key)
        actual = NEW if found is None or found.value is None else found.revision
        return Conflict(
            f"key '{key}' is at revision {actual}, the writer expected {expected}",
            hint="read it again and decide again",
        )

    async def _ensure(self) -> None:
        if self._made:
            return
        config = api.KeyValueConfig(
            bucket=self._bucket,
            history=1,
            replicas=self._replicas,
            limit_marker_ttl=_MARKER_SECONDS,
            description="Circuits, cursors and leaders of NoETL",
        )
        with self._connection.explained(f"making bucket {self._bucket}"):
            try:
                await self._connection.call(lambda streams: streams.create_key_value(config))
            except nats.js.errors.APIError as error:
                if error.err_code != _OTHER_CONFIGURATION:  # one whose limits an operator has changed is fine
                    raise
        self._made = True

    def _subject(self, key: str) -> str:
        return f"$KV.{self._bucket}.{_spelled(key)}"

    def _entry(self, subject: str, data: bytes | None, headers: dict[str, str] | None, revision: int) -> Entry:
        gone = any(name in (headers or {}) for name in _GONE)
        key = _read(subject[len(f"$KV.{self._bucket}.") :])
        return Entry(key=key, value=None if gone else data or b"", revision=revision)


_PLAIN = frozenset("-/_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")


async def _publish(subject: str, value: bytes, headers: dict[str, str], streams: JetStreamContext) -> api.PubAck:
    return await streams.publish(subject, value, headers=dict(headers))


def _spelled(key: str) -> str:
    """Any text in the characters that a key of NATS may have."""
    return "".join(char if char in _PLAIN else "".join(f"={byte:02X}" for byte in char.encode()) for char in key)


def _read(spelling: str) -> str:
    first, *rest = spelling.split("=")
    raw = first.encode() + b"".join(bytes.fromhex(part[:2]) + part[2:].encode() for part in rest)
    return raw.decode(errors="replace")
