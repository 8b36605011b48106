"""What every Tokens store must do. A subclass brings the fixture `tokens`, empty, on `clock`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.errors import InvalidInput, NotFound
from noetl.kernel.time import format_time
from noetl.ports.tokens import StoredToken, TokenInfo, Tokens

HOUR = 3_600_000_000


def token(clock: VirtualClock, name: str = "ci", **changes: Any) -> StoredToken:
    fields: dict[str, Any] = {
        "token_id": f"{name}-1",
        "tenant_id": "acme",
        "organization_id": "retail",
        "name": name,
        "roles": ("reader", "operator"),
        "created_at": format_time(clock.now()),
        "expires_at": format_time(clock.now() + HOUR),
        **changes,
    }
    return StoredToken(info=TokenInfo(**fields), sha256="ab" * 32)


class TokensContract:
    async def test_what_was_added_is_found_by_its_id(self, tokens: Tokens, clock: VirtualClock) -> None:
        added = token(clock)
        await tokens.add(added)
        assert await tokens.find("ci-1") == added
        assert await tokens.find("ci") is None
        assert await tokens.find("") is None

    async def test_a_name_is_free_again_when_its_token_has_ended(self, tokens: Tokens, clock: VirtualClock) -> None:
        await tokens.add(token(clock))
        with pytest.raises(InvalidInput, match="there is a token 'ci' already"):
            await tokens.add(token(clock, token_id="ci-2"))
        await tokens.add(token(clock, token_id="ci-3", tenant_id="other"))
        clock.advance(3600)
        await tokens.add(token(clock, token_id="ci-4"))
        await tokens.revoke("acme", "ci")
        await tokens.add(token(clock, token_id="ci-5", expires_at=None))
        assert [info.token_id for info in (await tokens.list("acme")).tokens] == ["ci-1", "ci-4", "ci-5"]

    async def test_of_many_with_one_name_at_once_one_is_added(self, tokens: Tokens, clock: VirtualClock) -> None:
        adding = [tokens.add(token(clock, token_id=f"ci-{n}")) for n in range(10)]
        outcomes = await asyncio.gather(*adding, return_exceptions=True)
        assert sum(outcome is None for outcome in outcomes) == 1

    async def test_revoking_ends_it_for_good(self, tokens: Tokens, clock: VirtualClock) -> None:
        await tokens.add(token(clock))
        revoked = await tokens.revoke("acme", "ci")
        assert revoked.revoked_at == format_time(clock.now())
        clock.advance(60)
        assert await tokens.revoke("acme", "ci-1") == revoked, "an id may be revoked again, and stays as it was"
        found = await tokens.find("ci-1")
        assert found is not None
        assert found.info == revoked
        with pytest.raises(NotFound, match="no token 'ci' in force"):
            await tokens.revoke("acme", "ci")

    async def test_a_name_means_the_newest_token_that_is_not_revoked(self, tokens: Tokens, clock: VirtualClock) -> None:
        await tokens.add(token(clock))
        clock.advance(7200)
        await tokens.add(token(clock, token_id="ci-2"))
        assert (await tokens.revoke("acme", "ci")).token_id == "ci-2"

    async def test_another_tenant_sees_and_ends_nothing(self, tokens: Tokens, clock: VirtualClock) -> None:
        await tokens.add(token(clock))
        assert (await tokens.list("other")).tokens == []
        for name in ("ci", "ci-1"):
            with pytest.raises(NotFound):
                await tokens.revoke("other", name)

    async def test_pages_follow_each_other(self, tokens: Tokens, clock: VirtualClock) -> None:
        for number in (3, 1, 2, 5, 4):
            await tokens.add(token(clock, f"name{number}"))
        seen: list[str] = []
        cursor = None
        for _ in range(3):
            page = await tokens.list("acme", cursor=cursor, limit=2)
            seen += [info.name for info in page.tokens]
            cursor = page.next_cursor
        assert cursor is None
        assert seen == [f"name{number}" for number in range(1, 6)]
        with pytest.raises(InvalidInput, match="is not a cursor"):
            await tokens.list("acme", cursor="nonsense")

    async def test_the_day_of_the_last_use_only_grows(self, tokens: Tokens, clock: VirtualClock) -> None:
        await tokens.add(token(clock))
        for day, known in (("2026-05-02", "2026-05-02"), ("2026-05-01", "2026-05-02"), ("2026-06-01", "2026-06-01")):
            await tokens.touch("ci-1", day)
            found = await tokens.find("ci-1")
            assert found is not None
            assert found.info.last_used_on == known
        await tokens.touch("nobody", "2026-06-01")
