"""Everything an embedded installation consists of, put together over one home."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.errors import Corruption, IntegrityMismatch, InvalidInput, NotFound, Unavailable
from noetl.runtime.home import Home
from noetl.runtime.wiring import open_embedded
from noetl.settings import Payloads, Settings
from tests.unit.kernel.drafts import STREAM, batch, draft


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


async def written(home: Home, *, events: int = 3) -> None:
    async with open_embedded(home, Settings(), create=True) as embedded:
        for _ in range(events):
            await embedded.ledger.append([batch(draft())])
        await embedded.projector.catch_up()


async def test_a_home_that_is_not_there_is_not_made_by_looking(home: Home) -> None:
    with pytest.raises(NotFound, match="there is no ledger in"):
        async with open_embedded(home, Settings()):
            pass
    assert not home.path.exists()


async def test_what_is_written_is_there_when_opened_again(home: Home) -> None:
    await written(home)
    async with open_embedded(home, Settings()) as embedded:
        assert await embedded.ledger.position() == 3
        assert (await embedded.verifier.verify(STREAM)).ok
        assert (await embedded.replayer.replay(STREAM)).state.root.event_count == 3
        assert await embedded.outbox.pending_count() == 0


async def test_the_parts_share_one_database(home: Home) -> None:
    await written(home)
    async with open_embedded(home, Settings()) as embedded:
        assert await embedded.leases.take("node/1", "me", seconds=5) is not None
        ref = await embedded.payloads.store(b"bytes", media_type="text/plain")
        assert await embedded.payloads.fetch(ref) == b"bytes"
    assert {path.name for path in home.path.iterdir()} == {"ledger.db", "ledger.anchor", "wallet", "payloads"}


async def test_the_ledger_is_keyed_with_the_wallets_key(home: Home) -> None:
    await written(home)
    async with open_embedded(home, Settings()) as embedded:
        assert embedded.ledger.mac_key == home.mac_key()
        head = await embedded.ledger.head(STREAM)
        assert head is not None
        assert head.mac is not None


async def test_a_closed_installation_answers_nothing(home: Home) -> None:
    await written(home)
    async with open_embedded(home, Settings()) as embedded:
        pass
    with pytest.raises(Unavailable, match="closed"):
        await embedded.ledger.position()


async def test_the_database_is_let_go_of_when_opening_fails(home: Home) -> None:
    await written(home)
    key = home.wallet / "ledger.key"
    right = key.read_text(encoding="ascii")
    key.write_text("00" * 32, encoding="ascii")
    with pytest.raises(IntegrityMismatch, match="sealed with another key"):
        async with open_embedded(home, Settings()):
            pass
    assert not home.ledger.with_name("ledger.db-wal").exists()
    key.write_text(right, encoding="ascii")
    await written(home)


async def test_a_ledger_with_a_bad_end_is_opened_only_to_be_examined(home: Home) -> None:
    await written(home)
    data = home.ledger.read_bytes()
    assert data.count(b"user:ada") == 3
    place = data.rindex(b"user:ada")
    home.ledger.write_bytes(data[:place] + b"user:eve" + data[place + 8 :])
    with pytest.raises(IntegrityMismatch, match="does not match its checksum"):
        async with open_embedded(home, Settings()):
            pass
    async with open_embedded(home, Settings(), examine=True) as embedded:
        assert (await embedded.verifier.verify(STREAM)).first_bad_event is not None


async def test_a_ledger_that_lost_its_end_is_opened_by_nobody(home: Home) -> None:
    await written(home, events=1)
    old = home.ledger.read_bytes()
    await written(home, events=1)
    home.ledger.write_bytes(old)
    for examine in (False, True):
        with pytest.raises(Corruption, match="but had reached 2"):
            async with open_embedded(home, Settings(), examine=examine):
                pass


async def test_payloads_are_kept_where_the_settings_say(home: Home, tmp_path: Path) -> None:
    elsewhere = Settings(payloads=Payloads(url=f"file://{tmp_path}/bucket"))
    async with open_embedded(home, elsewhere, create=True) as embedded:
        ref = await embedded.payloads.store(b"bytes", media_type="text/plain")
    kept = {path.name: path.read_bytes() for path in (tmp_path / "bucket").rglob("*") if path.is_file()}
    assert kept.pop(ref.sha256) == b"bytes"
    assert list(kept) == [f"{ref.sha256}.meta.json"]
    async with open_embedded(home, elsewhere) as embedded:
        assert await embedded.payloads.fetch(ref) == b"bytes"


@pytest.mark.parametrize(
    ("payloads", "message"),
    [
        (Payloads(options=("region=x",)), "payloads.options is set, but not payloads.url"),
        (Payloads(url="s3://bucket", options=("region",)), "payloads.options: 'region' has no value"),
        (Payloads(url="s3://bucket", options=("regoin=x",)), "s3://bucket has no option 'regoin'"),
    ],
)
async def test_a_store_that_is_not_described_well(home: Home, payloads: Payloads, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        async with open_embedded(home, Settings(payloads=payloads), create=True):
            pass
