"""Identity tokens for Google's services, by the private key of a service account (RFC 7523)."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from noetl.errors import InvalidInput
from noetl.kernel.event import Json
from noetl.tools.secrets.cache import Held
from noetl.tools.secrets.oauth import Http, fetch_token
from noetl.tools.secrets.sources import Resolver

__all__ = ["fetch_id_token"]

_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_TOKEN_URI = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
_LIFETIME = 3600
_INSIDE = ("service_account_json", "service_account", "json", "secret", "value")
"""Fields of a credential that may hold the service account's file as a whole."""


class _Account(msgspec.Struct, frozen=True, kw_only=True):
    """What of a service account's file is needed to sign."""

    client_email: str
    private_key: str
    private_key_id: str = ""
    token_uri: str = _TOKEN_URI


async def fetch_id_token(http: Http, fields: Json, credential: Resolver, now: int) -> Held:
    """Ask for a token that `target_audience` accepts. Raises InvalidInput, NotFound, Unavailable."""
    audience = fields.get("target_audience")
    if not isinstance(audience, str) or not audience:
        raise InvalidInput("a google_id_token entry needs a target_audience", hint="target_audience: https://...")
    account = await _account(fields, credential)
    assertion = _signed(account, audience, now // 1_000_000)
    asked = {"endpoint": account.token_uri, "data": {"grant_type": _GRANT, "assertion": assertion}}
    held = await fetch_token(http, asked, now)
    token = held.fields.get("id_token")
    if not isinstance(token, str):
        raise InvalidInput("the token endpoint answered without an id_token")
    return Held(fields={"id_token": token}, expires_at=_end_of(token) or now + _LIFETIME * 1_000_000)


async def _account(fields: Json, credential: Resolver) -> _Account:
    said: Any = fields.get("service_account_secret")
    if said is None:
        name = fields.get("service_account_credential") or fields.get("auth")
        if not isinstance(name, str):
            raise InvalidInput(
                "a google_id_token entry names no service account",
                hint="service_account_credential: the name of a stored gcs_service_account credential",
            )
        said = (await credential(name)).data
        said = next((said[field] for field in _INSIDE if said.get(field)), said)
    try:
        document = msgspec.json.decode(said) if isinstance(said, str) else said
        return msgspec.convert(document, _Account)
    except msgspec.MsgspecError:
        raise InvalidInput(
            "the service account has no client_email and private_key", hint="store the JSON file that Google gave you"
        ) from None


def _signed(account: _Account, audience: str, now: int) -> str:
    """The assertion: who we are and for whom the token is meant, under the account's key."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    try:
        key = serialization.load_pem_private_key(account.private_key.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InvalidInput("the private key of the service account cannot be read") from None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise InvalidInput("the private key of the service account is not an RSA key")
    header = {"alg": "RS256", "typ": "JWT"} | ({"kid": account.private_key_id} if account.private_key_id else {})
    claims = {
        "iss": account.client_email, "sub": account.client_email, "aud": account.token_uri,
        "iat": now, "exp": now + _LIFETIME, "target_audience": audience,
    }  # fmt: skip
    text = f"{_encoded(msgspec.json.encode(header))}.{_encoded(msgspec.json.encode(claims))}"
    return f"{text}.{_encoded(key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _end_of(token: str) -> int | None:
    """When the token ends, in microseconds, if it says so. Whether it is genuine is for its audience to ask."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (msgspec.DecodeError, binascii.Error, ValueError):
        return None
    end = claims.get("exp") if isinstance(claims, dict) else None
    return int(end * 1_000_000) if isinstance(end, int | float) else None
