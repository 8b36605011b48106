"""Custody: whoever changes a credential or a token does it here, and the tenant's stream says so.

The stores and the log commit apart, so a process may be killed between the two. What is written to the log is
therefore never "what I have just done" but the difference between what the stores hold and what the log knows of
them: whoever comes next finds what was left out and writes it down, as `system`. Nothing is recorded twice, because
the difference is appended only onto the version of the stream that it was taken from.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections.abc import Callable, Iterator, Sequence

import msgspec

from noetl.errors import Conflict, InvalidInput, VersionConflict
from noetl.kernel.event import Draft, Json
from noetl.kernel.fold.rows import TenantRow
from noetl.kernel.names.segments import check
from noetl.kernel.stamp import Batch
from noetl.kernel.streams import category_of
from noetl.kernel.tail import Stream
from noetl.kernel.time import format_time
from noetl.ports.access import ROLES, WORKER, Caller
from noetl.ports.clock import Clock
from noetl.ports.credentials import Credential, CredentialInfo, Credentials, Rotation
from noetl.ports.ledger import Ledger
from noetl.ports.tokens import StoredToken, TokenInfo, Tokens
from noetl.replay.service import Replayer
from noetl.runtime.origin import origin_of
from noetl.runtime.quotas import limits_of, refused
from noetl.runtime.wiring import Embedded
from noetl.settings import Settings

__all__ = ["TOKEN_PREFIX", "Custody", "TokenGrant", "custody_of", "digest_of", "fingerprint_of", "new_token"]

TOKEN_PREFIX = "ntl"  # noqa: S105 - what every token begins with, so that scanners for leaked secrets know ours
_ID_BYTES, _SECRET_BYTES = 8, 32
_TOKEN = re.compile(rf"{TOKEN_PREFIX}_([0-9a-f]{{{2 * _ID_BYTES}}})_[0-9a-f]{{{2 * _SECRET_BYTES}}}", re.ASCII)
_MOST_NAME = 128
_MOST_CONFLICTS = 20
_PAGE = 500
_SYSTEM = "system"
_WHILE = 60.0
_GRANTED = (*ROLES, WORKER)


class TokenGrant(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it is shown once. Its text is nowhere else."""

    token: str
    info: TokenInfo

    def __repr__(self) -> str:
        return f"TokenGrant({self.info!r})"


class _Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What custody is over."""

    credentials: Credentials
    tokens: Tokens
    ledger: Ledger
    replayer: Replayer
    clock: Clock


class Custody:
    """Changes credentials and tokens, and records that they changed: names and fingerprints, never values."""

    def __init__(
        self, parts: _Parts, *, project_id: str, producer: str, most_tokens: Callable[[str], int | None]
    ) -> None:
        """`most_tokens` says how many tokens of a tenant may be in force."""
        self._parts = parts
        self._project_id = project_id
        self._producer = producer
        self._most_tokens = most_tokens
        self._one_at_a_time = asyncio.Lock()

    async def put(self, caller: Caller, credential: Credential, *, replace: bool = True) -> CredentialInfo:
        """Store a credential as the next version of its name. Raises InvalidInput."""
        async with self._one_at_a_time:
            await self._settle(caller, _SYSTEM)
            info = await self._parts.credentials.put(caller.tenant_id, credential, replace=replace)
            await self._settle(caller, caller.principal)
        return info

    async def remove(self, caller: Caller, name: str) -> None:
        """Take a credential away for good. Raises NotFound."""
        async with self._one_at_a_time:
            await self._settle(caller, _SYSTEM)
            await self._parts.credentials.remove(caller.tenant_id, name)
            await self._settle(caller, caller.principal)

    async def rotate(self, caller: Caller, *, retire: bool = False) -> Rotation:
        """Seal every credential of every tenant with a new key; each tenant's stream says so."""
        async with self._one_at_a_time:
            await self._settle_all(caller, _SYSTEM)
            rotation = await self._parts.credentials.rotate(retire=retire)
            await self._settle_all(caller, caller.principal)
        return rotation

    async def create_token(
        self, caller: Caller, name: str, roles: Sequence[str], *, seconds: float | None
    ) -> TokenGrant:
        """Make a token for the caller's tenant and organisation. Raises InvalidInput, QuotaExceeded.

        It is kept as a digest; whoever loses the text needs another token.
        """
        grant = self._granted(caller, new_token(), name, roles, seconds)
        async with self._one_at_a_time:
            await self._check_room(grant.info)
            await self._settle(caller, _SYSTEM)
            await self._parts.tokens.add(StoredToken(info=grant.info, sha256=digest_of(grant.token)))
            await self._settle(caller, caller.principal)
        return grant

    async def adopt_token(
        self, caller: Caller, text: str, name: str, roles: Sequence[str], *, seconds: float | None
    ) -> TokenInfo:
        """Let a token in that was made elsewhere, such as with the secrets of an installation.

        Safe to do again: a token that is known stays as it is, and another one of this name is revoked. Raises
        InvalidInput for what is no token, or for one that was revoked.
        """
        grant = self._granted(caller, text, name, roles, seconds)
        async with self._one_at_a_time:
            await self._settle(caller, _SYSTEM)
            known = await self._parts.tokens.find(grant.info.token_id)
            if known is not None:
                return _same(known, grant)
            stored = await self._stored_tokens(caller.tenant_id)
            if any(one.name == name and one.revoked_at is None for one in stored):
                await self._parts.tokens.revoke(caller.tenant_id, name)
            await self._parts.tokens.add(StoredToken(info=grant.info, sha256=digest_of(text)))
            await self._settle(caller, caller.principal)
        return grant.info

    def _granted(self, caller: Caller, text: str, name: str, roles: Sequence[str], seconds: float | None) -> TokenGrant:
        _check_token(name, roles)
        now = self._parts.clock.now()
        info = TokenInfo(
            token_id=_id_in(text),
            tenant_id=check("tenant", caller.tenant_id),
            organization_id=check("organization", caller.organization_id),
            name=name,
            roles=tuple(role for role in _GRANTED if role in roles),
            created_at=format_time(now),
            expires_at=None if seconds is None else format_time(now + int(seconds * 1e6)),
        )
        return TokenGrant(token=text, info=info)

    async def tokens_in_force(self, tenant_id: str) -> int:
        """How many tokens of a tenant let somebody in."""
        now = format_time(self._parts.clock.now())
        return sum(
            info.revoked_at is None and (info.expires_at is None or info.expires_at > now)
            for info in await self._stored_tokens(tenant_id)
        )

    async def _check_room(self, info: TokenInfo) -> None:
        most = self._most_tokens(info.tenant_id)
        if most is not None and await self.tokens_in_force(info.tenant_id) >= most:
            raise refused(info.tenant_id, "tokens", most, _WHILE)

    async def revoke_token(self, caller: Caller, name: str) -> TokenInfo:
        """End a token by its name or id. Raises NotFound."""
        async with self._one_at_a_time:
            await self._settle(caller, _SYSTEM)
            info = await self._parts.tokens.revoke(caller.tenant_id, name)
            await self._settle(caller, caller.principal)
        return info

    async def settle(self, caller: Caller) -> None:
        """Record what a process that was killed has changed and not recorded, in every tenant that has a stream."""
        async with self._one_at_a_time:
            await self._settle_all(caller, _SYSTEM)

    async def _settle_all(self, caller: Caller, principal: str) -> None:
        for tenant_id in sorted({caller.tenant_id, *await self._tenants()}):
            await self._settle(msgspec.structs.replace(caller, tenant_id=tenant_id), principal)

    async def _settle(self, caller: Caller, principal: str) -> None:
        """Write down what the stores hold and the log does not know of."""
        stream = Stream(caller.tenant_id, f"tenant/{caller.tenant_id}")
        category_of(stream.stream_id)
        for _ in range(_MOST_CONFLICTS):
            row = await self._known(stream)
            found = [
                *_credential_changes(row, await self._stored_credentials(caller.tenant_id)),
                *_token_changes(row, await self._stored_tokens(caller.tenant_id)),
            ]
            if not found:
                return
            drafts = [self._draft(caller, principal, change) for change in found]
            try:
                await self._parts.ledger.append([Batch(stream=stream, drafts=drafts, expected_version=row.event_count)])
                return
            except VersionConflict:
                continue  # somebody else has written; what is missing now is less
        raise Conflict(
            f"'{stream.stream_id}' is written to without a pause, so the change is not recorded yet",
            hint="try again; the next change or start of the server records what is missing",
        )

    async def _known(self, stream: Stream) -> TenantRow:
        if await self._parts.ledger.head(stream) is None:
            return TenantRow()
        row: TenantRow = (await self._parts.replayer.replay(stream)).state.root
        return row

    async def _stored_credentials(self, tenant_id: str) -> list[CredentialInfo]:
        page = await self._parts.credentials.list(tenant_id, limit=_PAGE)
        found = list(page.credentials)
        while page.next_cursor:
            page = await self._parts.credentials.list(tenant_id, cursor=page.next_cursor, limit=_PAGE)
            found += page.credentials
        return found

    async def _stored_tokens(self, tenant_id: str) -> list[TokenInfo]:
        page = await self._parts.tokens.list(tenant_id, limit=_PAGE)
        found = list(page.tokens)
        while page.next_cursor:
            page = await self._parts.tokens.list(tenant_id, cursor=page.next_cursor, limit=_PAGE)
            found += page.tokens
        return found

    async def _tenants(self) -> list[str]:
        """The tenants that have a stream of their own; each is skipped over by its last possible name."""
        found: list[str] = []
        after: Stream | None = None
        while heads := await self._parts.ledger.heads(after=after, limit=1):
            tenant_id = heads[0].tenant_id
            after = Stream(tenant_id, "\U0010ffff")
            if await self._parts.ledger.head(Stream(tenant_id, f"tenant/{tenant_id}")) is not None:
                found.append(tenant_id)
        return found

    def _draft(self, caller: Caller, principal: str, change: _Change) -> Draft:
        return Draft(
            event_type=change.event_type,
            tenant_id=caller.tenant_id,
            organization_id=caller.organization_id,
            project_id=self._project_id,
            principal=principal,
            producer=self._producer,
            aggregate_type=change.event_type.partition(".")[0],
            aggregate_id=change.name,
            event_time=format_time(self._parts.clock.now()),
            payload=change.payload,
        )


class _Change(msgspec.Struct, frozen=True):
    event_type: str
    name: str
    payload: Json


def custody_of(embedded: Embedded, settings: Settings) -> Custody:
    """Custody over an embedded installation."""
    parts = _Parts(
        credentials=embedded.credentials,
        tokens=embedded.tokens,
        ledger=embedded.ledger,
        replayer=embedded.replayer,
        clock=embedded.clock,
    )
    return Custody(
        parts,
        project_id=settings.tenant.project,
        producer=origin_of(settings).producer,
        most_tokens=lambda tenant_id: limits_of(settings.quotas, tenant_id).tokens,
    )


def new_token() -> str:
    """The text of a token that nobody knows yet."""
    return f"{TOKEN_PREFIX}_{secrets.token_hex(_ID_BYTES)}_{secrets.token_hex(_SECRET_BYTES)}"


def digest_of(token: str) -> str:
    """What is kept of a token: enough to recognise it, too little to make it."""
    return hashlib.sha256(token.encode()).hexdigest()


def fingerprint_of(info: CredentialInfo) -> str:
    """Says which record it was, and nothing about its values: it covers only what may be known of them anyway."""
    known = (info.tenant_id, info.name, info.type, info.fields, info.version, info.created_at, info.updated_at)
    return hashlib.sha256(msgspec.json.encode(known)).hexdigest()[:32]


def _credential_changes(row: TenantRow, stored: Sequence[CredentialInfo]) -> Iterator[_Change]:
    # The new key first: a credential registered after a rotation names it too.
    key_id = next((info.key_id for info in stored if row.key_id is not None and info.key_id != row.key_id), None)
    if key_id is not None and row.credentials:
        yield _Change("credential.rotated", "*", {"previous_key_id": row.key_id, "key_id": key_id})
    for info in stored:
        fingerprint = fingerprint_of(info)
        if row.credentials.get(info.name, {}).get("fingerprint") != fingerprint:
            payload = {
                "type": info.type,
                "version": info.version,
                "fields": list(info.fields),
                "key_id": info.key_id,
                "fingerprint": fingerprint,
            }
            yield _Change("credential.registered", info.name, payload)
    present = {info.name for info in stored}
    for name, known in row.credentials.items():
        if name not in present:
            yield _Change("credential.removed", name, known)


def _token_changes(row: TenantRow, stored: Sequence[TokenInfo]) -> Iterator[_Change]:
    for info in stored:
        payload = {"name": info.name, "roles": list(info.roles), "expires_at": info.expires_at}
        if info.revoked_at is None and info.token_id not in row.tokens:
            yield _Change("token.created", info.token_id, {**payload, "organization_id": info.organization_id})
        elif info.revoked_at is not None and info.token_id in row.tokens:
            yield _Change("token.revoked", info.token_id, payload)


def _id_in(text: str) -> str:
    form = _TOKEN.fullmatch(text)
    if form is None:
        raise InvalidInput("this is not a token", hint="noetl deploy secrets makes one, and so does noetl token create")
    return form[1]


def _same(known: StoredToken, grant: TokenGrant) -> TokenInfo:
    """The token that is known already, if it is this one and in force."""
    info = known.info
    if known.sha256 != digest_of(grant.token) or (info.name, info.roles) != (grant.info.name, grant.info.roles):
        raise InvalidInput(f"there is another token with this id, '{info.name}'", hint="make a new one")
    if info.revoked_at is not None:
        raise InvalidInput(f"the token '{info.name}' was revoked", hint="make a new one, and use it everywhere")
    return info


def _check_token(name: str, roles: Sequence[str]) -> None:
    if not name or len(name) > _MOST_NAME or not name.isprintable() or name != name.strip():
        raise InvalidInput(
            "a token needs a name", hint=f"up to {_MOST_NAME} printable characters that say who uses it, such as ci"
        )
    unknown = [role for role in roles if role not in _GRANTED]
    if unknown or not roles:
        raise InvalidInput(
            f"'{unknown[0]}' is not a role" if unknown else "a token needs a role", hint=f"roles: {', '.join(_GRANTED)}"
        )
