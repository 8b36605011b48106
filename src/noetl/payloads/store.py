"""PayloadStore: immutable bytes under the digest of their content."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection
from pathlib import Path

import msgspec

from noetl.errors import IntegrityMismatch, InvalidInput, NotFound
from noetl.kernel.event import Draft, Envelope, PayloadRef
from noetl.kernel.names import PayloadName, ResultCoordinates, ResultName, parse
from noetl.kernel.names.segments import bounded, encode
from noetl.payloads.blocking import closing
from noetl.payloads.envelopes import externalize_envelope, resolve_envelope
from noetl.payloads.guard import CollectorGuard
from noetl.payloads.routes import split_route
from noetl.payloads.sidecar import put_with_sidecar, read_sidecar, remove_sidecar, write_sidecar
from noetl.payloads.spool import MEMORY_BYTES, Digest, Spool
from noetl.ports.objects import ObjectInfo, ObjectStore

__all__ = ["PayloadStore", "payload_key"]

_TENANT_CHARS = 160


def payload_key(tenant: str, sha256: str) -> str:
    """Where a tenant's bytes lie. Projects share them, because the digest is all that tells bytes apart."""
    return f"{bounded(encode(tenant), _TENANT_CHARS)}/{sha256[:2]}/{sha256[2:4]}/{sha256}"


class PayloadStore:
    """The bytes of one tenant. What it returns has the digest that was asked for, or it raises."""

    def __init__(
        self,
        objects: ObjectStore,
        tenant: str,
        project: str,
        *,
        memory_bytes: int = MEMORY_BYTES,
        spool_directory: Path | None = None,
        guard: CollectorGuard | None = None,
    ) -> None:
        PayloadName(tenant=tenant, project=project, sha256="0" * 64)  # refuses names before any byte is written
        self._objects = objects
        self._tenant = tenant
        self._project = project
        self._memory_bytes = memory_bytes
        self._spool_directory = spool_directory
        self._guard = guard

    def of_tenant(self, tenant: str) -> PayloadStore:
        """The bytes of another tenant, in the same object store."""
        return PayloadStore(
            self._objects,
            tenant,
            self._project,
            memory_bytes=self._memory_bytes,
            spool_directory=self._spool_directory,
            guard=self._guard,
        )

    async def store(
        self,
        data: bytes | AsyncIterable[bytes],
        *,
        media_type: str,
        rows: int | None = None,
        schema_digest: str | None = None,
    ) -> PayloadRef:
        """Keep the bytes and return their reference; bytes that are already kept are not written again.

        A stream may be of any length: it waits on the local disk until its digest, and so its name, is known.
        """

        def described(digest: Digest) -> PayloadRef:
            name = PayloadName(tenant=self._tenant, project=self._project, sha256=digest.sha256)
            return PayloadRef(
                uri=str(name),
                sha256=digest.sha256,
                media_type=media_type,
                bytes=digest.size,
                rows=rows,
                schema_digest=schema_digest,
            )

        if isinstance(data, bytes):
            digest = Digest()
            await digest.add(data)
            ref = described(digest)
            key = payload_key(self._tenant, digest.sha256)
            if not await put_with_sidecar(self._objects, key, data, ref):
                await self._confirm(key, digest, lambda: data)
            return ref
        digest, written = await self._store_stream(data)
        ref = described(digest)
        if written:
            await write_sidecar(self._objects, self.key(ref), ref)
        return ref

    async def fetch(self, ref: PayloadRef) -> bytes:
        """The whole payload. Raises NotFound, or IntegrityMismatch if the stored bytes are not the ones referred to."""
        key = self.key(ref)
        try:
            # One byte more than expected is enough to see that an object is too long, however long it is.
            data = await self._objects.get(key, length=ref.bytes + 1)
        except NotFound:
            raise _missing(ref, key) from None
        digest = Digest()
        await digest.add(data)
        _verify(ref, key, digest)
        return data

    async def open(self, ref: PayloadRef) -> AsyncIterator[bytes]:
        """The payload in chunks. The digest is known only at the end, so act on nothing before the last step."""
        key = self.key(ref)
        digest = Digest()
        try:
            async with closing(self._objects.stream(key)) as chunks:
                async for chunk in chunks:
                    await digest.add(chunk)
                    if digest.size > ref.bytes:
                        _verify(ref, key, digest)
                    yield chunk
        except NotFound:
            raise _missing(ref, key) from None
        _verify(ref, key, digest)

    async def ref_of(self, name: PayloadName) -> PayloadRef:
        """The reference behind a name, for whoever was given nothing else. Raises NotFound."""
        ref = PayloadRef(uri=str(name), sha256=name.sha256, media_type="application/octet-stream", bytes=0)
        key = self.key(ref)
        found = await self._objects.head(key)
        if found is None:
            raise _missing(ref, key)
        described = await read_sidecar(self._objects, key)
        if described is None or (described.sha256, described.bytes) != (ref.sha256, found.size):
            return msgspec.structs.replace(ref, bytes=found.size)
        return msgspec.structs.replace(
            ref,
            bytes=found.size,
            media_type=described.media_type,
            rows=described.rows,
            schema_digest=described.schema_digest,
        )

    async def exists(self, ref: PayloadRef) -> bool:
        """True if an object of the right size is there; only reading it tells whether its content is right."""
        found = await self._objects.head(self.key(ref))
        return found is not None and found.size == ref.bytes

    async def delete(self, ref: PayloadRef) -> bool:
        """Remove the bytes, also for every other reference to them; False when there were none."""
        key = self.key(ref)
        removed = await self._objects.delete(key)
        await remove_sidecar(self._objects, key)
        return removed

    async def externalize_envelope(self, draft: Draft, *, inline_max: int, keep: Collection[str] = ()) -> Draft:
        """The draft as it fits an event: a payload above `inline_max` bytes is stored, but for the keys to `keep`."""
        return await externalize_envelope(draft, self, inline_max=inline_max, keep=keep)

    async def resolve_envelope(self, envelope: Envelope, *, degraded: bool = False) -> Envelope:
        """The event with its whole payload. Raises NotFound, IntegrityMismatch; with `degraded` it is marked."""
        return await resolve_envelope(envelope, self, degraded=degraded)

    async def _store_stream(self, data: AsyncIterable[bytes]) -> tuple[Digest, bool]:
        spool = Spool(memory_bytes=self._memory_bytes, directory=self._spool_directory)
        try:
            await spool.fill(data)
            return spool.digest, await self._keep(spool.digest, spool.content)
        finally:
            await spool.close()

    async def _keep(self, digest: Digest, content: Callable[[], bytes | AsyncIterator[bytes]]) -> bool:
        """True if this call wrote the object for the first time."""
        key = payload_key(self._tenant, digest.sha256)
        if await self._objects.put(key, content()):
            return True
        await self._confirm(key, digest, content)
        return False

    async def _confirm(self, key: str, digest: Digest, content: Callable[[], bytes | AsyncIterator[bytes]]) -> None:
        """Make sure that an object that was there before is sound, and stays."""
        found = await self._objects.head(key)
        if not await self.renew(key, found, content) and (
            found is None or not await self._is_sound(key, found, digest)
        ):
            await self._objects.put(key, content(), overwrite=True)

    async def renew(
        self, key: str, found: ObjectInfo | None, content: Callable[[], bytes | AsyncIterator[bytes]]
    ) -> bool:
        """Write an object anew that a collector may be about to take; False if it is young enough, or not there."""
        if found is None or self._guard is None or not self._guard.is_at_risk(found):
            return False
        await self._objects.put(key, content(), overwrite=True)
        await self._guard.passed()
        if await self._objects.head(key) is None:
            await self._objects.put(key, content())
        return True

    async def _is_sound(self, key: str, found: ObjectInfo, expected: Digest) -> bool:
        """False for an object that is damaged or has just been deleted.

        The writer in front of it holds the right bytes: the one moment when damage can be healed at no risk.
        """
        if found.size != expected.size:
            return False
        actual = Digest()
        try:
            async for chunk in self._objects.stream(key):
                await actual.add(chunk)
        except NotFound:
            return False
        return actual.sha256 == expected.sha256

    def key(self, ref: PayloadRef) -> str:
        """Where the bytes of a reference lie. Raises InvalidInput if it is not this tenant's, or names other bytes."""
        name = parse(ref.uri)
        if isinstance(name, ResultName):
            self._check_tenant(ref, name.coordinates.tenant)
            return _key_of_result(ref, name.coordinates)
        if not isinstance(name, PayloadName) or name.sha256 != ref.sha256:
            raise InvalidInput(f"'{ref.uri}' does not name the payload sha256 {ref.sha256}")
        self._check_tenant(ref, name.tenant)
        return payload_key(name.tenant, name.sha256)

    def _check_tenant(self, ref: PayloadRef, tenant: str) -> None:
        if tenant != self._tenant:
            raise InvalidInput(
                f"'{ref.uri}' belongs to tenant '{tenant}', this store serves '{self._tenant}'",
                hint="ask the store of that tenant",
            )


def _key_of_result(ref: PayloadRef, coordinates: ResultCoordinates) -> str:
    """The key that was recorded. It must be one that the name leads to: references come from outside, too."""
    if ref.key is None or not coordinates.owns(split_route(ref.key)[1]):
        raise InvalidInput(f"'{ref.uri}' cannot be kept in object '{ref.key}'")
    return ref.key


def _verify(ref: PayloadRef, key: str, actual: Digest) -> None:
    if actual.size != ref.bytes:
        seen = "more" if actual.size > ref.bytes else f"only {actual.size}"
        problem = f"it should have {ref.bytes} bytes and has {seen}"
    elif actual.sha256 != ref.sha256:
        problem = f"its content has sha256 {actual.sha256}"
    else:
        return
    raise IntegrityMismatch(f"payload '{ref.uri}' is damaged in object '{key}': {problem}", hint="repair or restore it")


def _missing(ref: PayloadRef, key: str) -> NotFound:
    return NotFound(f"payload '{ref.uri}' is not in the store (object '{key}')")
