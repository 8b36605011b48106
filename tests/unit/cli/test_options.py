"""From what a person types to the root it means."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.cli.options import find_root, home_of, settings_of
from noetl.errors import InvalidInput, NotFound
from noetl.kernel.stamp import Batch
from noetl.kernel.tail import Stream
from noetl.runtime.home import Home
from noetl.runtime.wiring import Embedded, open_embedded
from noetl.settings import Settings, Tenant
from tests.unit.kernel.drafts import draft

ACME, GLOBEX = Settings(tenant=Tenant(id="acme")), Settings(tenant=Tenant(id="globex"))


async def begin(embedded: Embedded, tenant: str, number: int) -> Stream:
    stream = Stream(tenant, f"execution/{number}")
    begun = draft("playbook.initialized", tenant_id=tenant, execution_id=number, payload={"path": "a"})
    await embedded.ledger.append([Batch(stream=stream, drafts=[begun])])
    return stream


async def open_two(home: Home, *, projected: bool) -> None:
    """Execution 1 in both tenants, execution 2 in one."""
    async with open_embedded(home, Settings(), create=True) as embedded:
        for tenant, number in (("acme", 1), ("globex", 1), ("globex", 2)):
            await begin(embedded, tenant, number)
        record = draft(
            "tenant.created", tenant_id="globex", execution_id=None, aggregate_type="tenant", payload={"name": "G"}
        )
        await embedded.ledger.append([Batch(stream=Stream("globex", "tenant/globex"), drafts=[record])])
        if projected:
            await embedded.projector.catch_up()


@pytest.mark.parametrize("projected", [True, False])
async def test_an_id_is_looked_for_in_ones_own_tenant_first(projected: bool, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    await open_two(home, projected=projected)
    async with open_embedded(home, Settings()) as embedded:
        assert await find_root(embedded, "1", ACME) == Stream("acme", "execution/1")
        assert await find_root(embedded, "1", GLOBEX) == Stream("globex", "execution/1")
        assert await find_root(embedded, "2", ACME) == Stream("globex", "execution/2"), "then in all others"
        assert await find_root(embedded, "tenant/globex", ACME) == Stream("globex", "tenant/globex")
        assert await find_root(embedded, "execution/2/telemetry", ACME) == Stream("globex", "execution/2")
        with pytest.raises(InvalidInput, match="several tenants have execution/1: acme, globex") as caught:
            await find_root(embedded, "1", Settings())
        assert caught.value.hint == "choose one with --tenant"
        with pytest.raises(NotFound, match="there is no execution 3"):
            await find_root(embedded, "3", ACME)


@pytest.mark.parametrize(
    ("contexts", "said"),
    [
        ("", "noetl list shows what there is"),
        ('current = "stack"\n[contexts.stack]\nurl = "http://127.0.0.1:8082"\n', "not into what context 'stack' has"),
    ],
)
async def test_who_has_a_server_as_the_context_is_told_that_this_is_another_log(
    contexts: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "noetl").mkdir()
    (tmp_path / "noetl" / "contexts.toml").write_text(contexts)
    async with open_embedded(Home(tmp_path / "home"), Settings(), create=True) as embedded:
        with pytest.raises(NotFound, match="there is no execution 3") as caught:
            await find_root(embedded, "3", Settings())
    assert said in (caught.value.hint or "")


@pytest.mark.parametrize("name", ["", "x", "007", "1" * 30, "executions/1", "execution/1/other", "execution/"])
async def test_a_name_that_is_none(name: str, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    await open_two(home, projected=True)
    async with open_embedded(home, Settings()) as embedded:
        with pytest.raises(InvalidInput, match="is not an execution id"):
            await find_root(embedded, name, ACME)


def test_the_home_and_the_tenant_of_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOETL_HOME", "from-environment")
    monkeypatch.setenv("NOETL_TENANT__ID", "acme")
    assert home_of(None).path == tmp_path / "from-environment"
    assert home_of(Path("from-flag")).path == tmp_path / "from-flag"
    assert settings_of().tenant.id == "acme"
    assert settings_of("globex").tenant.id == "globex"
