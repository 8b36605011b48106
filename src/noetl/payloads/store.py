"""PayloadStore: immutable bytes under the digest of their content."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path

from noetl.errors import IntegrityMismatch, InvalidInput, NotFound
from noetl.kernel.event import PayloadRef
from noetl.kernel.names import PayloadName, parse
from noetl.kernel.names.segments import bounded, encode
from noetl.payloads.blocking import closing
from noetl.payloads.spool import MEMORY_BYTES, Digest, Spool
from noetl.ports.objects import ObjectStore

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
    ) -> None:
        PayloadName(tenant=tenant, project=project, sha256="0" * 64)  # refuses names before any byte is written
        self._objects = objects
        self._tenant = tenant
        self._project = project
        self._memory_bytes = memory_bytes
        self._spool_directory = spool_directory

    def of_tenant(self, tenant: str) -> PayloadStore:
        """The bytes of another tenant, in the same object store."""
        return PayloadStore(
            self._objects,
            tenant,
            self._project,
            memory_bytes=self._memory_bytes,
            spool_directory=self._spool_directory,
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
        digest = await (self._store_whole(data) if isinstance(data, bytes) else self._store_stream(data))
        name = PayloadName(tenant=self._tenant, project=self._project, sha256=digest.sha256)
        return PayloadRef(
            uri=str(name),
            sha256=digest.sha256,
            media_type=media_type,
            bytes=digest.size,
            rows=rows,
            schema_digest=schema_digest,
        )

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
        found = await self._objects.head(self.key(ref))
        if found is None:
            raise _missing(ref, self.key(ref))
        return PayloadRef(uri=ref.uri, sha256=ref.sha256, media_type=ref.media_type, bytes=found.size)

    async def exists(self, ref: PayloadRef) -> bool:
        """True if an object of the right size is there; only reading it tells whether its content is right."""
        found = await self._objects.head(self.key(ref))
        return found is not None and found.size == ref.bytes

    async def delete(self, ref: PayloadRef) -> bool:
        """Remove the bytes, also for every other reference to them; False when there were none."""
        return await self._objects.delete(self.key(ref))

    async def _store_whole(self, data: bytes) -> Digest:
        digest = Digest()
        await digest.add(data)
        key = payload_key(self._tenant, digest.sha256)
        if not await self._objects.put(key, data) and not await self._is_sound(key, digest):
            await self._objects.put(key, data, overwrite=True)
        return digest

    async def _store_stream(self, data: AsyncIterable[bytes]) -> Digest:
        spool = Spool(memory_bytes=self._memory_bytes, directory=self._spool_directory)
        try:
            await spool.fill(data)
            key = payload_key(self._tenant, spool.digest.sha256)
            if not await self._objects.put(key, spool.content()) and not await self._is_sound(key, spool.digest):
                await self._objects.put(key, spool.content(), overwrite=True)
            return spool.digest
        finally:
            await spool.close()

    async def _is_sound(self, key: str, expected: Digest) -> bool:
        """False for an object that is damaged or has just been deleted.

        The writer in front of it holds the right bytes: the one moment when damage can be healed at no risk.
        """
        found = await self._objects.head(key)
        if found is None or found.size != expected.size:
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
        if not isinstance(name, PayloadName) or name.sha256 != ref.sha256:
            raise InvalidInput(f"'{ref.uri}' does not name the payload sha256 {ref.sha256}")
        if name.tenant != self._tenant:
            raise InvalidInput(
                f"'{ref.uri}' belongs to tenant '{name.tenant}', this store serves '{self._tenant}'",
                hint="ask the store of that tenant",
            )
        return payload_key(name.tenant, name.sha256)


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
