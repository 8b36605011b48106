"""Entries are resolved on first use, in order, as often as they must be, and what fails stays undefined."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs

import msgspec
import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.credentials import MemoryCredentials
from noetl.errors import Forbidden
from noetl.playbook.document import KeychainEntry
from noetl.ports.credentials import Credential
from noetl.tools.authority import EVERYTHING, Authority
from noetl.tools.secrets.cache import KeychainCache, Situation
from noetl.tools.secrets.keychain import Keychain, Means
from noetl.tools.secrets.oauth import Answer, Request
from noetl.tools.secrets.sources import Environment, SecretFiles, with_environment
from tests.scribe import START

Scope = Literal["local", "shared", "catalog", "global"]
HERE = Situation(tenant="acme", execution="1", tree="1", version="v1", path="shop/orders")
USE = "{{ keychain.api.access_token }}"


class Endpoint:
    """A token endpoint: counts, and answers as it is told."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answer: dict[str, Any] = {"token_type": "Bearer", "expires_in": 3600}
        self.status = 200
        self.failure: Exception | None = None

    async def __call__(self, request: Request) -> Answer:
        self.requests.append(request)
        await asyncio.sleep(0)
        if self.failure:
            raise self.failure
        body = {"access_token": f"token-{len(self.requests)}", **self.answer}
        return Answer(status=self.status, body=msgspec.json.encode(body))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


@pytest.fixture
async def store(clock: VirtualClock) -> MemoryCredentials:
    made = MemoryCredentials(clock)
    await made.put("acme", Credential(name="crm_client", type="own", data={"client_id": "shop", "secret": "s3cr3t-1"}))
    return made


@pytest.fixture
def means(clock: VirtualClock, endpoint: Endpoint, store: MemoryCredentials, tmp_path: Path) -> Means:
    (tmp_path / "secrets").mkdir()
    environ = {
        "NOETL_KEYCHAIN_ENV_VARS": "API_TOKEN, NOT_SET",
        "API_TOKEN": "from-the-environment",
        "OTHER": "not allowed",
        "NOETL_KEYCHAIN_FILES": str(tmp_path / "secrets"),
    }
    environment = Environment(environ)
    return Means(
        credential=with_environment(lambda name: store.resolve("acme", name), environment),
        clock=clock,
        environment=environment,
        files=SecretFiles(environ),
        http=endpoint,
        cache=KeychainCache(),
    )


Open = Callable[..., Keychain]


@pytest.fixture
def open_keychain(means: Means) -> Open:
    def open_one(*entries: KeychainEntry, at: Situation = HERE, authority: Authority = EVERYTHING) -> Keychain:
        return Keychain(entries, means, at, authority=authority)

    return open_one


def entry(name: str, kind: str, *, scope: Scope = "global", auto_renew: bool = False, **fields: Any) -> KeychainEntry:
    return KeychainEntry(name=name, kind=kind, scope=scope, auto_renew=auto_renew, fields=fields)


def oauth(name: str = "api", **options: Any) -> KeychainEntry:
    return entry(
        name, "oauth2", endpoint="https://id.example/token", data={"grant_type": "client_credentials"}, **options
    )


async def test_a_stored_credential(open_keychain: Open) -> None:
    keychain = open_keychain(entry("crm", "credential", credential="crm_client"))
    assert await keychain.names_for("{{ keychain.crm.secret }}") == {"crm": {"client_id": "shop", "secret": "s3cr3t-1"}}
    assert keychain.redactor.text("s3cr3t-1 of shop") == "*** of shop"


async def test_literals_bearers_variables_and_files(open_keychain: Open, tmp_path: Path) -> None:
    (tmp_path / "secrets" / "db.txt").write_text("from-a-file\n")
    keychain = open_keychain(
        entry("fixed", "static", map={"a": "one-two", "n": 7}),
        entry("mine", "bearer", token="bearer-token"),
        entry("env", "secrets", provider="environment", map={"token": "API_TOKEN"}),
        entry("mounted", "secrets", provider="file", map={"password": "db.txt"}),
        entry("alias", "credential", credential="API_TOKEN"),
    )
    uses = [f"{{{{ keychain.{name}.x }}}}" for name in ("fixed", "mine", "env", "mounted", "alias")]
    assert await keychain.names_for(uses) == {
        "fixed": {"a": "one-two", "n": 7},
        "mine": {"token": "bearer-token"},
        "env": {"token": "from-the-environment"},
        "mounted": {"password": "from-a-file"},
        "alias": {"secret": "from-the-environment", "token": "from-the-environment"},
    }


async def test_only_what_is_used_is_resolved(open_keychain: Open, endpoint: Endpoint) -> None:
    keychain = open_keychain(oauth(), entry("fixed", "static", map={"a": "b"}))
    assert await keychain.names_for({"x": ["{{ keychain.fixed.a }}", "no template", 5]}) == {"fixed": {"a": "b"}}
    assert await keychain.names_for("{{ keychain.unknown.a }}", "{{ ctx.keychain }}") == {}
    assert endpoint.requests == []


async def test_a_name_that_cannot_be_foreseen_means_all(open_keychain: Open) -> None:
    keychain = open_keychain(entry("a", "static", map={"x": 1}), entry("b", "static", map={"x": 2}))
    assert await keychain.names_for("{{ keychain[ctx.which].x }}") == {"a": {"x": 1}, "b": {"x": 2}}


async def test_a_later_entry_uses_earlier_ones(open_keychain: Open, endpoint: Endpoint) -> None:
    keychain = open_keychain(
        entry("crm", "credential", credential="crm_client"),
        entry("api", "oauth2", endpoint="https://{{ workload.host }}/token",
              headers={"X-Id": "{{ keychain.crm.client_id }}"},
              data={"client_secret": "{{ keychain.crm.secret }}", "scope": None}),
        entry("header", "bearer", token="Token {{ keychain.api.access_token }}"),
    )  # fmt: skip
    found = await keychain.names_for("{{ keychain.header.token }}", names={"workload": {"host": "id.example"}})
    assert found == {"header": {"token": "Token token-1"}}, "only what was asked for is handed out"
    (request,) = endpoint.requests
    assert (request.method, request.url) == ("POST", "https://id.example/token")
    assert request.headers == {"X-Id": "shop", "Content-Type": "application/x-www-form-urlencoded"}
    assert parse_qs((request.body or b"").decode()) == {"client_secret": ["s3cr3t-1"]}
    assert keychain.redactor.text("token-1 s3cr3t-1") == "*** ***", "whatever was resolved on the way is known"


async def test_a_request_in_json(open_keychain: Open, endpoint: Endpoint) -> None:
    headers = {"content-type": "application/json"}
    keychain = open_keychain(
        entry("api", "oauth2", endpoint="https://id/t", method="put", headers=headers, data={"a": 1})
    )
    await keychain.names_for(USE)
    assert (endpoint.requests[0].method, endpoint.requests[0].body) == ("PUT", b'{"a":1}')


async def test_a_later_entry_is_not_there_yet(open_keychain: Open, caplog: pytest.LogCaptureFixture) -> None:
    keychain = open_keychain(
        entry("first", "bearer", token="{{ keychain.second.x }}"), entry("second", "static", map={"x": "y"})
    )
    assert await keychain.names_for("{{ keychain.first.token }}") == {}
    assert "keychain entry 'first' of kind bearer is undefined" in caplog.text
    assert "keychain.second" in caplog.text or "'second" in caplog.text


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (entry("api", "credential", credential="gone"), "there is no credential 'gone'"),
        (entry("api", "credential"), "no 'credential' that is text"),
        (entry("api", "bearer", token=5), "no 'token' that is text"),
        (entry("api", "static"), "no 'map' with at least one field"),
        (
            entry("api", "secrets", provider="environment", map={"a": "OTHER"}),
            "add its name to NOETL_KEYCHAIN_ENV_VARS",
        ),
        (entry("api", "secrets", provider="environment", map={"a": "NOT_SET"}), "NOT_SET is not set"),
        (entry("api", "secrets", provider="file", map={"a": "gone"}), "there is no secret file"),
        (entry("api", "secrets", provider="vault", map={"a": "b"}), "'vault' is not available here"),
        (entry("api", "secrets", map={"a": "b"}), "'None' is not available here"),
        (entry("api", "oauth2", endpoint="file:///etc/passwd"), "an endpoint that is a URL"),
        (entry("api", "google_id_token"), "needs a target_audience"),
        (entry("api", "google_id_token", target_audience="https://x"), "names no service account"),
        (entry("api", "google_id_token", target_audience="x", auth="crm_client"), "no client_email and private_key"),
        (entry("api", "own"), "keychain kind 'own' is not known"),
    ],
)
async def test_what_fails_is_logged_and_undefined(
    broken: KeychainEntry, reason: str, open_keychain: Open, caplog: pytest.LogCaptureFixture
) -> None:
    keychain = open_keychain(broken, entry("fine", "static", map={"x": "y"}))
    assert await keychain.names_for(USE, "{{ keychain.fine.x }}") == {"fine": {"x": "y"}}
    assert await keychain.names_for(USE) == {}
    (record,) = caplog.records
    assert reason in record.getMessage()
    assert record.levelno == logging.WARNING


class TestTokens:
    async def test_a_token_is_used_until_it_expires(
        self, open_keychain: Open, endpoint: Endpoint, clock: VirtualClock
    ) -> None:
        for seconds, token in ((0, "token-1"), (3599, "token-1"), (1, "token-2")):
            clock.advance(seconds)
            assert (await open_keychain(oauth()).names_for(USE))["api"]["access_token"] == token

    async def test_with_auto_renew_it_is_renewed_before(
        self, open_keychain: Open, endpoint: Endpoint, clock: VirtualClock
    ) -> None:
        for seconds, token in ((0, "token-1"), (3300, "token-1"), (1, "token-2"), (3000, "token-2")):
            clock.advance(seconds)
            assert (await open_keychain(oauth(auto_renew=True)).names_for(USE))["api"]["access_token"] == token

    async def test_a_renewal_that_fails_leaves_the_old_one_until_it_expires(
        self, open_keychain: Open, endpoint: Endpoint, clock: VirtualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        await open_keychain(oauth(auto_renew=True)).names_for(USE)
        clock.advance(3400)
        endpoint.failure = ConnectionRefusedError()
        assert (await open_keychain(oauth(auto_renew=True)).names_for(USE))["api"]["access_token"] == "token-1"
        assert "'api' is not renewed yet: the token endpoint id.example does not answer" in caplog.text
        clock.advance(200)
        assert await open_keychain(oauth(auto_renew=True)).names_for(USE) == {}

    async def test_many_that_ask_at_once_ask_once(self, open_keychain: Open, endpoint: Endpoint) -> None:
        found = await asyncio.gather(*(open_keychain(oauth()).names_for(USE) for _ in range(50)))
        assert {names["api"]["access_token"] for names in found} == {"token-1"}
        assert len(endpoint.requests) == 1

    async def test_one_that_is_cancelled_takes_nobody_with_it(self, open_keychain: Open, endpoint: Endpoint) -> None:
        first = asyncio.ensure_future(open_keychain(oauth()).names_for(USE))
        others = [asyncio.ensure_future(open_keychain(oauth()).names_for(USE)) for _ in range(3)]
        await asyncio.sleep(0)
        first.cancel()
        assert {names["api"]["access_token"] for names in await asyncio.gather(*others)} == {"token-2"}

    @pytest.mark.parametrize("lifetime", ["600", 600, 600.5])
    async def test_a_lifetime_may_be_text(
        self, lifetime: Any, open_keychain: Open, endpoint: Endpoint, clock: VirtualClock
    ) -> None:
        endpoint.answer["expires_in"] = lifetime
        for seconds, count in ((0, 1), (599, 1), (2, 2)):
            clock.advance(seconds)
            await open_keychain(oauth()).names_for(USE)
            assert len(endpoint.requests) == count

    async def test_a_refusal_is_told_in_the_words_of_the_endpoint(
        self, open_keychain: Open, endpoint: Endpoint, caplog: pytest.LogCaptureFixture
    ) -> None:
        endpoint.status = 401
        endpoint.answer = {"error": "invalid_client", "error_description": "no such client", "debug": "internals"}
        assert await open_keychain(oauth()).names_for(USE) == {}
        assert "the token endpoint id.example answered 401: invalid_client - no such client" in caplog.text
        assert "internals" not in caplog.text

    async def test_a_replaced_client_secret_gets_a_token_of_its_own(
        self, open_keychain: Open, endpoint: Endpoint, store: MemoryCredentials, clock: VirtualClock
    ) -> None:
        entries = (
            entry("crm", "credential", credential="crm_client"),
            entry("api", "oauth2", endpoint="https://id/t", data={"secret": "{{ keychain.crm.secret }}"}),
        )
        await open_keychain(*entries).names_for(USE)
        await store.put("acme", Credential(name="crm_client", type="own", data={"secret": "s3cr3t-2"}))
        clock.advance(301)  # stored credentials are looked up again after five minutes
        assert (await open_keychain(*entries).names_for(USE))["api"]["access_token"] == "token-2"


class TestScopes:
    @pytest.mark.parametrize(
        ("scope", "shared_with"),
        [("local", {"same"}), ("shared", {"same", "child"}), ("catalog", {"same", "other run"}),
         ("global", {"same", "other run", "other version"})],
    )  # fmt: skip
    async def test_who_shares_a_token(
        self, scope: Scope, shared_with: set[str], open_keychain: Open, endpoint: Endpoint
    ) -> None:
        situations = {
            "same": HERE,
            "child": Situation(tenant="acme", execution="2", tree="1", version="v9", path="shop/child"),
            "other run": Situation(tenant="acme", execution="3", tree="3", version="v1", path="shop/orders"),
            "other version": Situation(tenant="acme", execution="4", tree="4", version="v2", path="shop/orders"),
            "other tenant": Situation(tenant="globex", execution="1", tree="1", version="v1", path="shop/orders"),
        }
        await open_keychain(oauth(scope=scope)).names_for(USE)
        found = {
            who: (await open_keychain(oauth(scope=scope), at=at).names_for(USE))["api"]["access_token"]
            for who, at in situations.items()
        }
        assert {who for who, token in found.items() if token == "token-1"} == shared_with

    async def test_the_narrowest_scope_comes_first(self, open_keychain: Open) -> None:
        await open_keychain(oauth(scope="local")).names_for(USE)
        cousin = msgspec.structs.replace(HERE, execution="2", tree="2")
        await open_keychain(oauth(scope="global"), at=cousin).names_for(USE)
        for at, token in ((HERE, "token-1"), (cousin, "token-2")):
            assert (await open_keychain(oauth(scope="global"), at=at).names_for(USE))["api"]["access_token"] == token

    async def test_what_belongs_to_an_execution_goes_with_it(
        self, open_keychain: Open, means: Means, endpoint: Endpoint
    ) -> None:
        await open_keychain(oauth(scope="local")).names_for(USE)
        means.cache.forget("1")
        await open_keychain(oauth(scope="local")).names_for(USE)
        assert len(endpoint.requests) == 2


class TestFiles:
    @pytest.mark.parametrize("name", ["", "/etc/passwd", "../outside", "a/../../outside", "nul\0", "link", "directory"])
    async def test_no_name_leads_out_of_the_directory(self, name: str, means: Means, tmp_path: Path) -> None:
        from noetl.errors import InvalidInput

        (tmp_path / "outside").write_text("outside")
        (tmp_path / "secrets" / "link").symlink_to(tmp_path / "outside")
        (tmp_path / "secrets" / "directory").mkdir()
        with pytest.raises(InvalidInput):
            await means.files.read(name)

    async def test_links_within_the_directory_are_how_platforms_mount(self, means: Means, tmp_path: Path) -> None:
        root = tmp_path / "secrets"
        (root / "..data").mkdir()
        (root / "..data" / "token").write_text("mounted\r\n")
        (root / "token").symlink_to("..data/token")
        assert await means.files.read("token") == "mounted"

    async def test_what_is_not_text_or_too_large_is_refused(self, means: Means, tmp_path: Path) -> None:
        from noetl.errors import InvalidInput

        (tmp_path / "secrets" / "binary").write_bytes(b"\xff\xfe")
        (tmp_path / "secrets" / "large").write_bytes(b"x" * 1_100_000)
        for name, message in (("binary", "not UTF-8"), ("large", "more than 1048576 bytes")):
            with pytest.raises(InvalidInput, match=message):
                await means.files.read(name)


class TestAuthority:
    async def test_what_is_allowed_is_resolved(self, open_keychain: Open) -> None:
        keychain = open_keychain(
            entry("api", "credential", credential="crm_client"), authority=Authority(credentials=("crm_client",))
        )
        assert (await keychain.names_for("{{ keychain.api.secret }}"))["api"]["secret"] == "s3cr3t-1"

    async def test_what_another_execution_has_resolved_is_refused_all_the_same(self, open_keychain: Open) -> None:
        one = entry("api", "credential", credential="crm_client")
        await open_keychain(one).names_for("{{ keychain.api.secret }}")
        with pytest.raises(Forbidden, match="not authorised to use the credential 'crm_client'"):
            await open_keychain(one, authority=Authority(credentials=())).names_for("{{ keychain.api.secret }}")

    @pytest.mark.parametrize("provider", ["environment", "file"])
    async def test_variables_and_files_are_credentials_too(self, provider: str, open_keychain: Open) -> None:
        one = entry("api", "secrets", provider=provider, map={"token": "API_TOKEN"})
        with pytest.raises(Forbidden, match="API_TOKEN"):
            await open_keychain(one, authority=Authority(credentials=("other",))).names_for("{{ keychain.api.token }}")
