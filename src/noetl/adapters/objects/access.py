"""What a task's credential says about a bucket: the keys, and how its store is reached.

One credential may serve several tools, so what is not for a bucket is left alone. No message repeats a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from noetl.adapters.objects.options import AzureOptions, GoogleOptions, Options, S3Options
from noetl.errors import InvalidInput

__all__ = ["KINDS", "Access", "access_of"]

KINDS: Mapping[str, type[Options]] = {"s3": S3Options, "gs": GoogleOptions, "az": AzureOptions}
_TYPES = {
    "s3": frozenset({"s3", "aws", "minio"}),
    "gs": frozenset({"gs", "gcs", "gcs_service_account", "google_service_account", "google_oauth"}),
    "az": frozenset({"az", "azure", "azure_blob", "azure_storage"}),
}
# The library's name -> how a credential may call it.
_SECRETS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "s3": {
        "access_key_id": ("access_key_id", "key_id", "aws_access_key_id", "access_key"),
        "secret_access_key": ("secret_access_key", "secret_key", "aws_secret_access_key", "secret"),
        "session_token": ("session_token", "aws_session_token"),
    },
    "az": {
        "account_key": ("account_key", "storage_account_key", "access_key"),
        "sas_token": ("sas_token", "sas"),
        "token": ("token", "access_token"),
        "tenant_id": ("tenant_id",),
        "client_id": ("client_id",),
        "client_secret": ("client_secret",),
    },
    "gs": {"token": ("token", "access_token")},
}
_OPTIONS = {
    "endpoint": ("endpoint", "endpoint_url"),
    "region": ("region", "aws_region", "region_name"),
    "account": ("account", "account_name", "storage_account"),
}
_KEY_FILE = (
    "project_id", "private_key_id", "private_key", "client_email", "client_id", "auth_uri", "token_uri",
    "auth_provider_x509_cert_url", "client_x509_cert_url", "universe_domain",
)  # fmt: skip
_NO = frozenset({"false", "no", "0", "off"})


class Access(NamedTuple):
    """Secrets apart from what may be shown."""

    credentials: Mapping[str, str]
    options: Mapping[str, object]


NOTHING = Access({}, {})


def access_of(scheme: str, auth: Any) -> Access:
    """What the resolved `auth` of a task gives for a bucket. Raises InvalidInput if nothing in it fits."""
    if auth is None or auth == {}:
        return NOTHING
    entry = _entry(scheme, auth)
    options = _options(scheme, entry)
    credentials = _service_account(entry) if scheme == "gs" else {}
    credentials = credentials or _named(entry, _SECRETS[scheme])
    if not credentials and not options.get("anonymous"):
        raise _lacking(scheme, entry)
    return Access(credentials, options)


def _entry(scheme: str, auth: Any) -> Mapping[str, Any]:
    """The one credential that is for such a bucket."""
    if not isinstance(auth, Mapping):
        raise InvalidInput("the credential has not been resolved")
    if "type" in auth or not all(isinstance(entry, Mapping) for entry in auth.values()):
        return _flat(auth)
    fitting = [entry for alias, entry in auth.items() if {alias, entry.get("type")} & _TYPES[scheme]]
    found = fitting or list(auth.values())
    if len(found) != 1:
        raise InvalidInput(
            f"auth has {len(found)} credentials that could be for {scheme}://", hint="name the one that is meant"
        )
    return _flat(found[0])


def _flat(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = entry.get("data")
    return {**entry, **inner} if isinstance(inner, Mapping) else entry


def _named(entry: Mapping[str, Any], names: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    return {
        meant: str(value)
        for meant, choices in names.items()
        if (value := next((entry[name] for name in choices if entry.get(name)), None)) is not None
    }


def _options(scheme: str, entry: Mapping[str, Any]) -> dict[str, object]:
    known = {field.name for field in msgspec.structs.fields(KINDS[scheme])}
    given: dict[str, object] = {name: entry[name] for name in known if entry.get(name) is not None}
    given |= {name: value for name, value in _named(entry, _OPTIONS).items() if name in known}
    if "path_style" in known and entry.get("url_style"):
        given.setdefault("path_style", str(entry["url_style"]).lower() == "path")
    endpoint = given.get("endpoint")
    if isinstance(endpoint, str) and "://" not in endpoint:
        plain = str(entry.get("use_ssl", True)).lower() in _NO
        given["endpoint"] = f"{'http' if plain else 'https'}://{endpoint}"
    return given


def _service_account(entry: Mapping[str, Any]) -> dict[str, str]:
    """A key file as text, as a mapping, or with its fields beside each other."""
    whole = entry.get("service_account_json")
    if isinstance(whole, Mapping):
        whole = msgspec.json.encode(dict(whole)).decode()
    if whole:
        return {"service_account_json": str(whole)}
    fields = {name: str(entry[name]) for name in _KEY_FILE if entry.get(name)}
    if not {"client_email", "private_key"} <= fields.keys():
        return {}
    return {**fields, "type": "service_account"}


def _lacking(scheme: str, entry: Mapping[str, Any]) -> InvalidInput:
    kind = str(entry.get("type") or "unknown")[:64]
    if scheme == "gs" and kind == "gcs_hmac":
        return InvalidInput(
            "a credential of type gcs_hmac cannot open gs:// addresses",
            hint="use a gcs_service_account, or s3:// with the endpoint https://storage.googleapis.com",
        )
    wanted = {
        "s3": "access_key_id and secret_access_key",
        "gs": "token, service_account_json or the fields of a key file",
        "az": "account_key, sas_token, token or tenant_id, client_id and client_secret",
    }
    return InvalidInput(
        f"the credential of type {kind} has nothing that opens {scheme}:// addresses", hint=f"give {wanted[scheme]}"
    )
