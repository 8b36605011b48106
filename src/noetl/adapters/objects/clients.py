"""The client library's stores, made from options and credentials.

Credentials that are given stand alone. They go through a provider where the library has one, because it would fill
the gaps in a configuration from the environment, and half a key of each is worse than none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from noetl.adapters.objects.options import AzureOptions, GoogleOptions, Options, S3Options, suggest
from noetl.errors import InvalidInput

if TYPE_CHECKING:
    from obstore.store import (
        AzureAccessKey,
        AzureBearerToken,
        AzureConfig,
        AzureSASToken,
        GCSConfig,
        GCSCredential,
        S3Config,
        S3Credential,
    )
    from obstore.store import ObjectStore as Client

__all__ = ["make_clients"]

# As credentials of these types are written elsewhere in playbooks; the first name is the one that messages use.
_S3_NAMES = {
    "access_key_id": ("access_key_id", "key_id", "aws_access_key_id", "access_key"),
    "secret_access_key": ("secret_access_key", "secret_key", "aws_secret_access_key", "secret"),
    "session_token": ("session_token", "aws_session_token", "token"),
}
_AZURE_FORMS = ({"account_key"}, {"sas_token"}, {"token"}, {"tenant_id", "client_id", "client_secret"})


# S3 itself makes a copy conditional when an upload in parts is completed. Compatible stores may know the header on a
# plain copy, and some of them keep to the condition there only.
_COPY_BY_HEADER = "header-with-status:if-none-match:*:412"
_COPY_BY_PARTS = "multipart"


async def make_clients(bucket: str, options: Options, credentials: Mapping[str, str]) -> tuple[Client, ...]:
    """The library's stores for one bucket: the first for everything, and each a way of copying conditionally.

    It is a coroutine so that the library's complaints are explained like all its others.
    """
    if isinstance(options, S3Options):
        ways = (_COPY_BY_HEADER, _COPY_BY_PARTS) if options.endpoint else (_COPY_BY_PARTS,)
        return tuple(_s3(bucket, options, credentials, way) for way in ways)
    if isinstance(options, AzureOptions):
        return (_azure(bucket, options, credentials),)
    assert isinstance(options, GoogleOptions)
    return (_google(bucket, options, credentials),)


def _s3(bucket: str, options: S3Options, credentials: Mapping[str, str], copying: str) -> Client:
    from obstore.store import S3Store

    in_path = options.path_style if options.path_style is not None else options.endpoint is not None
    config: S3Config = {"virtual_hosted_style_request": not in_path, "copy_if_not_exists": copying}
    if options.endpoint:
        config["endpoint"] = options.endpoint if in_path else _with_bucket(options.endpoint, bucket)
    if options.region:
        config["region"] = options.region
    if options.encryption:
        config["server_side_encryption"] = options.encryption
    if options.kms_key_id:
        config["sse_kms_key_id"] = options.kms_key_id
    if options.anonymous:
        config["skip_signature"] = True
    return S3Store(
        bucket,
        config=config,
        client_options=options.client_options(),
        retry_config=options.retry_config(),
        credential_provider=_s3_provider(credentials) if credentials else None,
    )


def _google(bucket: str, options: GoogleOptions, credentials: Mapping[str, str]) -> Client:
    from obstore.store import GCSStore

    config: GCSConfig = {}
    if options.endpoint:
        config["base_url"] = options.endpoint
    if options.anonymous:
        config["skip_signature"] = True
    token = credentials.get("token") if set(credentials) == {"token"} else None
    if credentials and token is None:
        config["service_account_key"] = _service_account(credentials)

    def provide() -> GCSCredential:
        assert token is not None
        return {"token": token, "expires_at": None}

    return GCSStore(
        bucket,
        config=config,
        client_options=options.client_options(),
        retry_config=options.retry_config(),
        credential_provider=provide if token is not None else None,
    )


def _azure(container: str, options: AzureOptions, credentials: Mapping[str, str]) -> Client:
    from obstore.store import AzureStore

    config: AzureConfig = {}
    if options.account:
        config["account_name"] = options.account
    if options.endpoint:
        config["endpoint"] = options.endpoint
    if options.anonymous:
        config["skip_signature"] = True
    if credentials:
        _check_azure(credentials)
    if "client_secret" in credentials:
        config["tenant_id"] = credentials["tenant_id"]
        config["client_id"] = credentials["client_id"]
        config["client_secret"] = credentials["client_secret"]

    def provide() -> AzureAccessKey | AzureSASToken | AzureBearerToken:
        if "account_key" in credentials:
            return {"access_key": credentials["account_key"], "expires_at": None}
        if "sas_token" in credentials:
            return {"sas_token": credentials["sas_token"].removeprefix("?"), "expires_at": None}
        return {"token": credentials["token"], "expires_at": None}

    return AzureStore(
        container,
        config=config,
        client_options=options.client_options(),
        retry_config=options.retry_config(),
        credential_provider=provide if credentials and "client_secret" not in credentials else None,
    )


class _S3Provider:
    """Answers with the credentials that were given, and does not show them."""

    def __init__(self, credential: S3Credential) -> None:
        self._credential = credential

    def __call__(self) -> S3Credential:
        return self._credential


def _s3_provider(credentials: Mapping[str, str]) -> _S3Provider:
    known = {name: meant for meant, names in _S3_NAMES.items() for name in names}
    _refuse_unknown("s3", credentials, known)
    given = {known[name]: value for name, value in credentials.items() if value}
    if missing := [name for name in ("access_key_id", "secret_access_key") if name not in given]:
        raise InvalidInput(f"credentials for s3 lack {' and '.join(missing)}", hint="give both, or neither")
    return _S3Provider(
        {
            "access_key_id": given["access_key_id"],
            "secret_access_key": given["secret_access_key"],
            "token": given.get("session_token"),
            "expires_at": None,
        }
    )


def _service_account(credentials: Mapping[str, str]) -> str:
    """The key file as text, or its fields, as a credential of type gcs_service_account holds either."""
    if set(credentials) == {"service_account_json"}:
        return credentials["service_account_json"]
    if {"client_email", "private_key"} <= set(credentials):
        return msgspec.json.encode(dict(credentials)).decode()
    raise InvalidInput(
        "credentials for gs are neither a token nor a service account",
        hint="give token, or service_account_json, or the fields of the key file",
    )


def _check_azure(credentials: Mapping[str, str]) -> None:
    _refuse_unknown("az", credentials, {name for form in _AZURE_FORMS for name in form})
    if set(credentials) not in _AZURE_FORMS:
        forms = "; or ".join(", ".join(sorted(form)) for form in _AZURE_FORMS)
        raise InvalidInput("credentials for az are incomplete or of several kinds", hint=f"give {forms}")


def _refuse_unknown(scheme: str, credentials: Mapping[str, str], known: Iterable[str]) -> None:
    """Names may be shown, values never."""
    known = set(known)
    for name in credentials:
        if name not in known:
            raise InvalidInput(f"credentials for {scheme} have no '{name}'", hint=suggest(name, known))


def _with_bucket(endpoint: str, bucket: str) -> str:
    parts = urlsplit(endpoint)
    return parts._replace(netloc=f"{bucket}.{parts.netloc}").geturl()
