"""An installation whose ledger is in Postgres: the same struct, and what several homes share."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.adapters.postgres.database import Database
from noetl.errors import IntegrityMismatch, InvalidInput, Unavailable
from noetl.runtime.home import Home
from noetl.runtime.schema import look_at_database, migrate_database
from noetl.runtime.wiring import open_embedded
from noetl.settings import DatabaseUrl, Ledger, Seconds, Settings
from tests.contracts.postgres import OpenPlace, made_places, open_database, postgres_database, postgres_server
from tests.unit.kernel.drafts import STREAM, batch, draft

__all__ = ["made_places", "open_database", "postgres_database", "postgres_server"]


@pytest.fixture
def settings(made_places: OpenPlace, postgres_database: Database) -> Settings:
    return Settings(ledger=Ledger(url=DatabaseUrl(made_places("first").dsn)))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home", elsewhere=True)


async def written(home: Home, settings: Settings, *, events: int = 3) -> None:
    async with open_embedded(home, settings, create=True) as embedded:
        for _ in range(events):
            await embedded.ledger.append([batch(draft())])
        await embedded.projector.catch_up()


async def test_what_is_written_is_there_when_opened_again(home: Home, settings: Settings) -> None:
    await written(home, settings)
    async with open_embedded(home, settings) as embedded:
        assert await embedded.ledger.position() == 3
        assert (await embedded.verifier.verify(STREAM)).ok
        assert (await embedded.replayer.replay(STREAM)).state.root.event_count == 3
        assert await embedded.outbox.pending_count() == 0
        assert await embedded.leases.take("node/1", "me", seconds=5) is not None
        assert embedded.ledger.mac_key == home.mac_key() is not None
    assert not home.ledger.exists()


async def test_another_home_reads_without_the_key_and_writes_with_it(
    home: Home, settings: Settings, tmp_path: Path
) -> None:
    await written(home, settings)
    other = Home(tmp_path / "other", elsewhere=True)
    async with open_embedded(other, settings, create=True) as embedded:
        assert await embedded.ledger.position() == 3
        with pytest.raises(InvalidInput, match="which the wallet does not hold; nothing was written"):
            await embedded.ledger.append([batch(draft())])
    (other.wallet / "ledger.key").write_bytes((home.wallet / "ledger.key").read_bytes())
    (other.wallet / "ledger.key").chmod(0o600)
    await written(other, settings)
    async with open_embedded(home, settings) as embedded:
        assert await embedded.ledger.position() == 6


async def test_a_home_with_another_key_is_refused(home: Home, settings: Settings, tmp_path: Path) -> None:
    other = Home(tmp_path / "other", elsewhere=True)
    async with open_embedded(other, settings, create=True) as late:
        await written(home, settings)
        with pytest.raises(IntegrityMismatch, match="sealed with another key"):
            await late.ledger.append([batch(draft())])
    with pytest.raises(IntegrityMismatch, match="sealed with another key"):
        async with open_embedded(other, settings):
            pass


async def test_a_server_that_is_not_there_is_named_without_the_password(home: Home) -> None:
    url = DatabaseUrl("postgresql://ada:s3cret@127.0.0.1:1/noetl")
    settings = Settings(ledger=Ledger(url=url, busy_timeout=Seconds(0.1)))
    with pytest.raises(Unavailable, match=r"postgresql://127\.0\.0\.1:1/noetl cannot be reached") as refused:
        async with open_embedded(home, settings, create=True):
            pass
    assert "s3cret" not in str(refused.value)
    assert not home.path.exists()


async def test_a_database_says_how_it_stands(home: Home, settings: Settings) -> None:
    await written(home, settings)
    found = await look_at_database(settings, None)
    assert (found.current, found.position, found.streams) == (True, 3, 1)
    assert any("fsync is off" in warning for warning in found.warnings)
    assert await migrate_database(Settings(), settings.ledger.url) == (found.database, [])
    with pytest.raises(InvalidInput, match=r"ledger\.url is not set.*--database"):
        await look_at_database(Settings(), None)
