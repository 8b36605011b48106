"""An identity token is asked for under the key of a service account, and kept until it ends."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from noetl.errors import InvalidInput, NotFound
from noetl.ports.credentials import Credential
from noetl.tools.secrets.google import fetch_id_token
from noetl.tools.secrets.oauth import Answer, Request

NOW = 1_800_000_000_000_000
AUDIENCE = "https://orders.example"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem(key: Any) -> str:
    form = serialization.PrivateFormat.PKCS8
    return str(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode())


ACCOUNT = {
    "type": "service_account",
    "client_email": "runner@shop.example",
    "private_key": pem(KEY),
    "private_key_id": "k1",
    "token_uri": "https://id.example/token",
}


def encoded(claims: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()


class Google:
    """Checks the assertion as Google does, and gives a token for the audience that it names."""

    def __init__(self, **claims: Any) -> None:
        self.claims = claims
        self.asked: list[dict[str, Any]] = []
        self.urls: list[str] = []

    async def __call__(self, request: Request) -> Answer:
        form = parse_qs((request.body or b"").decode())
        header, claims, signature = form["assertion"][0].split(".")
        raw = base64.urlsafe_b64decode(signature + "==")
        KEY.public_key().verify(raw, f"{header}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256())
        self.asked.append(json.loads(base64.urlsafe_b64decode(claims + "==")))
        self.urls.append(request.url)
        token = f"{encoded({'alg': 'RS256'})}.{encoded(self.claims)}.signature"
        return Answer(status=200, body=json.dumps({"id_token": token}).encode())


async def stored(name: str) -> Credential:
    data: dict[str, Any] = {"plain": ACCOUNT, "whole": {"service_account_json": json.dumps(ACCOUNT)}}.get(name, {})
    if not data:
        raise NotFound(f"there is no credential '{name}'")
    return Credential(name=name, type="gcs_service_account", data=data)


@pytest.mark.parametrize(
    "named",
    [
        {"service_account_credential": "plain"},
        {"service_account_credential": "whole"},
        {"auth": "plain"},
        {"service_account_secret": json.dumps(ACCOUNT)},
        {"service_account_secret": ACCOUNT},
    ],
)
async def test_an_account_can_be_named_in_several_ways(named: dict[str, Any]) -> None:
    google = Google(exp=NOW // 1_000_000 + 600)
    held = await fetch_id_token(google, {"target_audience": AUDIENCE, **named}, stored, NOW)
    assert held.left(NOW) == 600
    assert held.fields["id_token"].endswith(".signature")
    assert google.urls == ["https://id.example/token"]
    assert google.asked == [
        {
            "iss": "runner@shop.example", "sub": "runner@shop.example", "aud": "https://id.example/token",
            "iat": 1_800_000_000, "exp": 1_800_003_600, "target_audience": AUDIENCE,
        }
    ]  # fmt: skip


async def test_a_token_that_does_not_say_when_it_ends_is_kept_for_an_hour() -> None:
    held = await fetch_id_token(Google(), {"target_audience": AUDIENCE, "auth": "plain"}, stored, NOW)
    assert held.left(NOW) == 3600


@pytest.mark.parametrize(
    ("key", "reason"), [("not a key", "cannot be read"), (pem(ec.generate_private_key(ec.SECP256R1())), "not an RSA")]
)
async def test_a_key_that_cannot_sign_is_refused_without_being_shown(key: str, reason: str) -> None:
    fields = {"target_audience": AUDIENCE, "service_account_secret": {**ACCOUNT, "private_key": key}}
    with pytest.raises(InvalidInput, match=reason) as refused:
        await fetch_id_token(Google(), fields, stored, NOW)
    assert key not in str(refused.value)


async def test_an_answer_without_a_token() -> None:
    async def empty(_: Request) -> Answer:
        return Answer(status=200, body=b"{}")

    with pytest.raises(InvalidInput, match="without an id_token"):
        await fetch_id_token(empty, {"target_audience": AUDIENCE, "auth": "plain"}, stored, NOW)
