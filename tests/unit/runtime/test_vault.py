"""The vault: one look at a step's text, one redactor for an execution, nothing kept when it is over."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.credentials import MemoryCredentials
from noetl.engine.decide import Report, Suspension
from noetl.errors import Forbidden, InvalidInput, NotFound
from noetl.playbook.document import Playbook
from noetl.playbook.parse import load
from noetl.ports.credentials import Credential
from noetl.runtime import vault as module
from noetl.runtime.vault import Session, Vault
from noetl.tools.authority import EVERYTHING, Authority
from noetl.tools.secrets.cache import Situation
from noetl.tools.secrets.oauth import Answer, Request
from tests.scribe import START
from tests.unit.runtime.workshop import as_text, book, step

SECRET = "not-a-real-token"
ENVIRON = {"NOETL_KEYCHAIN_ENV_VARS": "FROM_ENV", "FROM_ENV": "of-the-environment"}


class Client:
    """A token endpoint behind a client that can be closed."""

    def __init__(self) -> None:
        self.asked = 0
        self.closed = False

    async def __call__(self, request: Request) -> Answer:
        self.asked += 1
        return Answer(status=200, body=b'{"access_token": "token-number-%d", "expires_in": 3600}' % self.asked)

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
async def vault(client: Client) -> Vault:
    clock = VirtualClock(START)
    store = MemoryCredentials(clock)
    await store.put("default", Credential(name="crm", type="bearer", data={"token": SECRET}))
    return Vault(store, clock, "default", ENVIRON, lambda: client)  # type: ignore[arg-type, return-value]  # a stand-in


def playbook(text: str, **root: Any) -> Playbook:
    return load(as_text(book(step("a", tool={"kind": "noop", "result": text}), **root)))


async def opened(
    vault: Vault, document: Playbook, execution: str = "1", version: str = "v1", authority: Authority = EVERYTHING
) -> Session:
    at = Situation(tenant="default", execution=execution, tree=execution, version=version, path="t")
    return await vault.open(document, document.steps["a"], at, dict, authority)


async def test_only_what_is_named_is_resolved(vault: Vault) -> None:
    entries = [
        {"name": "k", "kind": "credential", "credential": "crm"},
        {"name": "other", "kind": "credential", "credential": "gone"},
    ]
    session = await opened(vault, playbook("{{ keychain.k.token }}", keychain=entries))
    assert session.names == {"keychain": {"k": {"token": SECRET}}}
    assert (await opened(vault, playbook("plain", keychain=entries), version="v2")).names == {}


async def test_the_text_of_a_step_is_looked_through_once(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    look = module.wanted_by

    def counting(*written: Any) -> Any:
        looked.append(written)
        return look(*written)

    monkeypatch.setattr(module, "wanted_by", counting)
    document = playbook("{{ token('crm') }}")
    for _ in range(3):
        assert (await opened(vault, document)).tokens("crm") == SECRET
    assert len(looked) == 1
    await opened(vault, document, version="v2")
    assert len(looked) == 2


async def test_an_execution_has_one_redactor_until_it_ends(vault: Vault) -> None:
    first = await opened(vault, playbook("{{ token('crm') }}"))
    second = await opened(vault, playbook("no secret"), version="v2")
    report = Report(command_id=1, result={"seen": SECRET})
    assert second.redacted(report) == Report(command_id=1, result={"seen": {"$secret": "crm.token"}})
    vault.forget("1")
    third = await opened(vault, playbook("no secret"), version="v3")
    assert third.redactor is not first.redactor


async def test_what_waits_for_a_call_is_redacted_too(vault: Vault) -> None:
    session = await opened(vault, playbook("{{ token('crm') }}"))
    wait = Suspension(command_id=1, call={"input": {"t": SECRET}}, state={"results": [f"Bearer {SECRET}"]})
    said = session.redacted(wait)
    assert isinstance(said, Suspension)
    assert (said.call, said.state) == ({"input": {"t": {"$secret": "crm.token"}}}, {"results": ["Bearer ***"]})


async def test_tokens_are_fetched_once_and_the_client_is_closed(vault: Vault, client: Client) -> None:
    entry = {"name": "k", "kind": "oauth2", "endpoint": "https://id.example/token", "auto_renew": True}
    document = playbook("{{ keychain.k.access_token }}", keychain=[entry])
    for execution in ("1", "2"):
        session = await opened(vault, document, execution)
        assert session.names["keychain"]["k"]["access_token"] == "token-number-1"
    assert client.asked == 1
    await vault.close()
    assert client.closed


async def test_what_is_local_to_an_execution_goes_with_it(vault: Vault, client: Client) -> None:
    entry = {"name": "k", "kind": "oauth2", "endpoint": "https://id.example/token", "scope": "local"}
    document = playbook("{{ keychain.k.access_token }}", keychain=[entry])
    await opened(vault, document)
    vault.forget("1")
    await opened(vault, document)
    assert client.asked == 2


async def test_an_allowed_variable_is_a_credential(vault: Vault) -> None:
    session = await opened(vault, playbook("x"))
    assert await session.auth("FROM_ENV") == {
        "secret": "of-the-environment", "token": "of-the-environment", "type": "secret",
    }  # fmt: skip
    with pytest.raises(NotFound):
        await session.auth("HOME")


async def test_a_session_looks_a_credential_up_once_and_the_next_one_again(vault: Vault) -> None:
    looked: list[str] = []
    resolve = vault._credentials.resolve

    async def counted(tenant_id: str, name: str) -> Credential:
        looked.append(name)
        return await resolve(tenant_id, name)

    vault._credentials.resolve = counted  # type: ignore[method-assign]  # to count
    for _ in range(2):
        session = await opened(vault, playbook("x"))
        assert await session.auth("crm") == await session.auth("crm") == {"token": SECRET, "type": "bearer"}
    assert looked == ["crm", "crm"]


async def test_fields_that_name_credentials_are_resolved(vault: Vault) -> None:
    session = await opened(vault, playbook("x"))
    script = {"uri": "https://x/a.py", "source": {"type": "https", "auth": "crm"}}
    fields = await session.fields({"gcs_credential": "crm", "script": script, "code": "crm"})
    known = {"token": SECRET, "type": "bearer"}
    assert fields == {
        "gcs_credential": known, "script": {**script, "source": {"type": "https", "auth": known}}, "code": "crm",
    }  # fmt: skip
    plain = {"script": {"source": {"code": "x"}}}
    assert await session.fields(plain) == plain
    assert await session.resolved("crm", {"gcs_credential": "crm"}) == (known, {"gcs_credential": known})
    assert await session.resolved(None, plain) == (None, plain)


async def test_authority_holds_for_every_way_to_a_credential(vault: Vault) -> None:
    nothing = Authority(credentials=())
    session = await opened(vault, playbook("x"), authority=nothing)
    with pytest.raises(Forbidden):
        await session.auth("crm")
    with pytest.raises(Forbidden):
        await session.fields({"gcs_credential": "crm"})
    with pytest.raises(Forbidden):
        await opened(vault, playbook("{{ token('crm') }}"), version="v2", authority=nothing)


async def test_a_token_that_was_not_foreseen_is_refused(vault: Vault) -> None:
    session = await opened(vault, playbook("x"))
    with pytest.raises(InvalidInput, match="not written out in the template"):
        session.tokens("crm")


@pytest.fixture
def lines(vault: Vault) -> Iterator[list[str]]:
    kept: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: kept.append(handler.format(record))  # type: ignore[method-assign]
    handler.addFilter(vault.guard)
    logging.getLogger().addHandler(handler)
    yield kept
    logging.getLogger().removeHandler(handler)


async def test_the_guard_keeps_secrets_of_running_executions_out_of_the_log(vault: Vault, lines: list[str]) -> None:
    await opened(vault, playbook("{{ token('crm') }}"))
    try:
        raise ValueError(f"bad {SECRET}")
    except ValueError:
        logging.getLogger("a.library").exception("asked with %s", SECRET)
    assert SECRET not in lines[0]
    assert "asked with ***" in lines[0]
    assert "ValueError: bad ***" in lines[0]
