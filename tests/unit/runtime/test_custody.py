"""Changes of credentials and tokens stand in the tenant's stream, whatever happens in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from noetl.errors import Conflict, InvalidInput, InvalidName, NotFound
from noetl.kernel.tail import Stream
from noetl.ports.access import Caller
from noetl.ports.credentials import Credential
from noetl.runtime.custody import TOKEN_PREFIX, Custody, custody_of, digest_of, fingerprint_of, new_token
from noetl.runtime.home import Home
from noetl.runtime.wiring import Embedded, open_embedded
from noetl.settings import Settings

SECRET = "correct-horse-battery"
ADA = Caller(principal="user:ada", tenant_id="acme", organization_id="retail", roles=frozenset({"admin"}))
BOB = msgspec.structs.replace(ADA, principal="user:bob", tenant_id="other")


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with open_embedded(Home(tmp_path / "home"), Settings(), create=True) as opened:
        yield opened


@pytest.fixture
def custody(embedded: Embedded) -> Custody:
    return custody_of(embedded, Settings())


def bearer(name: str = "crm", token: str = SECRET) -> Credential:
    return Credential(name=name, type="bearer", data={"token": token})


async def told(embedded: Embedded, tenant: str = "acme") -> list[tuple[str, str | None, str]]:
    events = await embedded.ledger.read(Stream(tenant, f"tenant/{tenant}"))
    return [(item.event.event_type, item.event.aggregate_id, item.event.principal) for item in events]


async def state(embedded: Embedded, tenant: str = "acme") -> Any:
    return (await embedded.replayer.replay(Stream(tenant, f"tenant/{tenant}"))).state.root


async def test_every_change_is_told_once_and_by_whom(embedded: Embedded, custody: Custody) -> None:
    await custody.put(ADA, bearer())
    await custody.put(ADA, bearer(token="another-one"))
    await custody.rotate(ADA)
    grant = await custody.create_token(ADA, "ci", ["operator"], seconds=60)
    await custody.revoke_token(ADA, "ci")
    await custody.remove(ADA, "crm")
    assert await told(embedded) == [
        ("credential.registered", "crm", "user:ada"),
        ("credential.registered", "crm", "user:ada"),
        ("credential.rotated", "*", "user:ada"),
        ("token.created", grant.info.token_id, "user:ada"),
        ("token.revoked", grant.info.token_id, "user:ada"),
        ("credential.removed", "crm", "user:ada"),
    ]
    row = await state(embedded)
    assert (row.credentials, row.tokens, row.unknown) == ({}, {}, {})


async def test_the_log_knows_names_and_fingerprints_and_never_values(
    embedded: Embedded, custody: Custody, tmp_path: Path
) -> None:
    info = await custody.put(ADA, bearer())
    grant = await custody.create_token(ADA, "ci", ["reader"], seconds=None)
    row = await state(embedded)
    assert row.credentials == {"crm": {"type": "bearer", "version": 1, "fingerprint": fingerprint_of(info)}}
    assert row.key_id == info.key_id
    assert row.tokens == {grant.info.token_id: {"name": "ci", "expires_at": None}}
    await embedded.projector.catch_up()
    for file in (tmp_path / "home").rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert SECRET.encode() not in content
            assert grant.token.encode() not in content


async def test_what_a_killed_process_has_not_recorded_is_recorded_by_the_next(
    embedded: Embedded, custody: Custody
) -> None:
    await custody.put(ADA, bearer("kept"))
    await embedded.credentials.put("acme", bearer("crm"))  # and here the process was killed
    await embedded.credentials.remove("acme", "kept")
    await custody.settle(ADA)
    assert (await told(embedded))[1:] == [
        ("credential.registered", "crm", "system"),
        ("credential.removed", "kept", "system"),
    ]
    await custody.settle(ADA)
    assert len(await told(embedded)) == 3, "nothing is left to record"


async def test_what_was_left_over_is_not_blamed_on_who_comes_next(embedded: Embedded, custody: Custody) -> None:
    await embedded.credentials.put("acme", bearer("left"))
    await custody.put(ADA, bearer("mine"))
    assert await told(embedded) == [
        ("credential.registered", "left", "system"),
        ("credential.registered", "mine", "user:ada"),
    ]


async def test_a_token_that_was_made_and_revoked_is_told_as_both(embedded: Embedded, custody: Custody) -> None:
    from noetl.ports.tokens import StoredToken, TokenInfo

    info = TokenInfo(
        token_id="ab" * 8, tenant_id="acme", organization_id="retail", name="ci", roles=("reader",),
        created_at="2026-05-16T12:00:00.000000Z", expires_at=None,
    )  # fmt: skip
    await embedded.tokens.add(StoredToken(info=info, sha256="cd" * 32))  # killed before it was told
    await custody.revoke_token(ADA, "ci")
    assert [kind for kind, _, _ in await told(embedded)] == ["token.created", "token.revoked"]


async def test_a_rotation_is_told_to_every_tenant(embedded: Embedded, custody: Custody) -> None:
    await custody.put(ADA, bearer())
    await custody.put(BOB, bearer())
    rotation = await custody.rotate(ADA)
    for tenant in ("acme", "other"):
        assert (await told(embedded, tenant))[-1] == ("credential.rotated", "*", "user:ada")
        assert (await state(embedded, tenant)).key_id == rotation.key_id


async def test_a_rotation_is_not_blamed_for_what_another_tenant_had_left_over(
    embedded: Embedded, custody: Custody
) -> None:
    await custody.put(BOB, bearer())
    await embedded.credentials.put("other", bearer("left"))
    await custody.rotate(ADA)
    assert (await told(embedded, "other"))[1:] == [
        ("credential.registered", "left", "system"),
        ("credential.rotated", "*", "user:ada"),
    ]


async def test_two_processes_at_once_tell_everything_once(embedded: Embedded) -> None:
    ours, theirs = custody_of(embedded, Settings()), custody_of(embedded, Settings())
    await asyncio.gather(*(side.put(ADA, bearer(f"c{n}")) for n in range(8) for side in (ours, theirs)))
    row = await state(embedded)
    stored = (await embedded.credentials.list("acme")).credentials
    assert {name: known["version"] for name, known in row.credentials.items()} == {
        info.name: info.version for info in stored
    }
    assert row.event_count == len(await told(embedded))


async def test_what_fails_is_not_told(embedded: Embedded, custody: Custody) -> None:
    await custody.put(ADA, bearer())
    with pytest.raises(InvalidInput, match="already"):
        await custody.put(ADA, bearer(), replace=False)
    with pytest.raises(NotFound):
        await custody.remove(ADA, "missing")
    with pytest.raises(NotFound):
        await custody.revoke_token(ADA, "missing")
    assert len(await told(embedded)) == 1


async def test_a_token_is_long_random_and_kept_as_a_digest(embedded: Embedded, custody: Custody) -> None:
    first = await custody.create_token(ADA, "one", ["admin", "reader"], seconds=3600)
    second = await custody.create_token(ADA, "two", ["reader"], seconds=3600)
    assert first.token.startswith(f"{TOKEN_PREFIX}_{first.info.token_id}_")
    assert len(first.token.rpartition("_")[2]) * 4 == 256
    assert first.token.rpartition("_")[2] != second.token.rpartition("_")[2]
    assert first.info.roles == ("reader", "admin")
    stored = await embedded.tokens.find(first.info.token_id)
    assert stored is not None
    assert stored.sha256 == digest_of(first.token)
    assert first.token not in repr(first)


async def test_a_token_made_elsewhere_is_let_in_once(embedded: Embedded, custody: Custody) -> None:
    text = new_token()
    first = await custody.adopt_token(ADA, text, "workers", ["worker"], seconds=None)
    assert await custody.adopt_token(ADA, text, "workers", ["worker"], seconds=None) == first
    stored = await embedded.tokens.find(first.token_id)
    assert stored is not None
    assert (stored.sha256, stored.info.expires_at) == (digest_of(text), None)
    assert [type_ for type_, _, _ in await told(embedded)] == ["token.created"]


async def test_the_next_token_made_elsewhere_takes_the_place_of_the_last(embedded: Embedded, custody: Custody) -> None:
    old, new = new_token(), new_token()
    first = await custody.adopt_token(ADA, old, "workers", ["worker"], seconds=None)
    second = await custody.adopt_token(ADA, new, "workers", ["worker"], seconds=None)
    assert second.token_id != first.token_id
    assert sorted(type_ for type_, _, _ in await told(embedded)) == ["token.created", "token.created", "token.revoked"]
    with pytest.raises(InvalidInput, match="was revoked"):
        await custody.adopt_token(ADA, old, "workers", ["worker"], seconds=None)


async def test_what_is_no_token_or_somebody_elses_is_not_let_in(custody: Custody) -> None:
    grant = await custody.create_token(ADA, "ci", ["reader"], seconds=None)
    with pytest.raises(InvalidInput, match="this is not a token"):
        await custody.adopt_token(ADA, "secret", "workers", ["worker"], seconds=None)
    with pytest.raises(InvalidInput, match="there is another token with this id, 'ci'"):
        await custody.adopt_token(ADA, grant.token, "workers", ["worker"], seconds=None)


@pytest.mark.parametrize(
    ("name", "roles", "message"),
    [
        ("", ["reader"], "a token needs a name"),
        (" ci", ["reader"], "a token needs a name"),
        ("a\nb", ["reader"], "a token needs a name"),
        ("x" * 129, ["reader"], "a token needs a name"),
        ("ci", [], "a token needs a role"),
        ("ci", ["root"], "'root' is not a role"),
    ],
)
async def test_a_token_that_makes_no_sense_is_refused(
    name: str, roles: list[str], message: str, custody: Custody
) -> None:
    with pytest.raises(InvalidInput, match=message):
        await custody.create_token(ADA, name, roles, seconds=60)


async def test_a_tenant_that_cannot_be_named_has_no_tokens(custody: Custody) -> None:
    with pytest.raises(InvalidName):
        await custody.create_token(msgspec.structs.replace(ADA, tenant_id=".."), "ci", ["reader"], seconds=60)


async def test_a_stream_that_is_never_still_is_given_up_and_said(embedded: Embedded, custody: Custody) -> None:
    from noetl.errors import VersionConflict

    class Busy:
        def __getattr__(self, name: str) -> Any:
            return getattr(embedded.ledger, name)

        async def append(self, batches: Any) -> Any:
            raise VersionConflict("tenant/acme", 0, 1)

    busy = custody_of(msgspec.structs.replace(embedded, ledger=Busy()), Settings())
    with pytest.raises(Conflict, match="not recorded yet"):
        await busy.put(ADA, bearer())
    await custody.settle(ADA)
    assert await told(embedded) == [("credential.registered", "crm", "system")]
