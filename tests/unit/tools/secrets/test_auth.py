"""What a task's auth and a template's token() stand for."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.errors import InvalidInput, NotFound
from noetl.playbook.templates import Host, render
from noetl.ports.credentials import Credential
from noetl.tools.secrets.auth import resolve_auth
from noetl.tools.secrets.redaction import Redactor
from noetl.tools.secrets.tokens import Tokens, token_of

STORED = {
    "pg": Credential(name="pg", type="postgres", data={"db_host": "localhost", "db_password": "hunter22"}),
    "crm": Credential(name="crm", type="bearer", data={"token": "crm-token"}),
}
PG = {"db_host": "localhost", "db_password": "hunter22", "type": "postgres"}
CRM = {"token": "crm-token", "type": "bearer"}


async def resolver(name: str) -> Credential:
    if name not in STORED:
        raise NotFound(f"there is no credential '{name}'")
    return STORED[name]


@pytest.mark.parametrize(
    ("auth", "expected"),
    [
        (None, None),
        ("", None),
        ({}, None),
        ("pg", PG),
        ({"source": "credential", "key": "pg", "tool": "postgres"}, PG),
        ({"name": "pg", "service": "x"}, PG),
        ({"type": "bearer", "credential": "crm"}, CRM),
        ({"db": "pg", "api": {"type": "api_key", "key": "crm"}}, {"db": PG, "api": CRM | {"type": "api_key"}}),
    ],
)
async def test_what_it_stands_for(auth: Any, expected: Any) -> None:
    redactor = Redactor()
    assert await resolve_auth(auth, resolver, redactor) == expected
    if expected:
        text = redactor.text("localhost hunter22 crm-token")
        assert text.startswith("localhost ")
        assert "***" in text


@pytest.mark.parametrize(
    ("auth", "error", "message"),
    [
        ("gone", NotFound, "there is no credential 'gone'"),
        (5, InvalidInput, "auth is not the name of a credential"),
        ({"a": 5}, InvalidInput, "an entry of auth is not the name"),
        ({"source": "adc", "name": "x"}, InvalidInput, "auth from 'adc' is not available here"),
        ({"a": {"provider": "secret_manager", "key": "x"}}, InvalidInput, "'secret_manager' is not available"),
        ({"a": {"tool": "http"}}, InvalidInput, "names no credential"),
    ],
)
async def test_what_cannot_be_resolved_says_why(auth: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        await resolve_auth(auth, resolver, Redactor())


async def test_a_template_asks_for_a_token() -> None:
    redactor = Redactor()
    tokens = Tokens(resolver, redactor)
    written = {"headers": {"Authorization": "Bearer {{ token('crm') }}"}}
    await tokens.prepare(written)
    rendered = render(written["headers"]["Authorization"], {}, host=Host(token=tokens))
    assert rendered == "Bearer crm-token"
    assert redactor.text(rendered) == "Bearer ***"


async def test_a_name_that_is_not_written_out_is_not_found() -> None:
    tokens = Tokens(resolver, Redactor())
    await tokens.prepare("{{ token(ctx.which) }}")
    with pytest.raises(InvalidInput, match="not written out in the template"):
        tokens("crm")


def test_a_credential_without_a_token() -> None:
    with pytest.raises(InvalidInput, match="credential 'pg' of type postgres has no token"):
        token_of(STORED["pg"])
