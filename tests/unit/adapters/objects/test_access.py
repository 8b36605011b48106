"""Credentials as people store them, and what a bucket is opened with."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from noetl.adapters.objects.access import access_of
from noetl.errors import InvalidInput

KEYS = {"access_key_id": "id", "secret_access_key": "planted"}
ACCOUNT = {"client_email": "me@project", "private_key": "planted", "project_id": "p"}


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "s3", **KEYS},
        {"type": "aws", "aws_access_key_id": "id", "aws_secret_access_key": "planted"},
        {"type": "s3", "key_id": "id", "secret_key": "planted", "bucket": "b", "scope": "s3://b", "token_type": "x"},
        {"type": "s3", "data": KEYS},
        {"other": {"type": "postgres", "db_host": "h"}, "store": {"type": "s3", **KEYS}},
        {"s3": {"type": "custom", **KEYS}, "gcs": {"type": "gcs_service_account"}},
        {"whatever": {"type": "custom", **KEYS}},
    ],
)
def test_keys_of_s3(entry: dict[str, Any]) -> None:
    assert access_of("s3", entry).credentials == KEYS


def test_how_the_store_is_reached() -> None:
    entry = {
        "type": "s3", **KEYS, "session_token": "planted", "endpoint_url": "https://store:9000", "region_name": "eu",
        "url_style": "vhost", "retries": 1,
    }  # fmt: skip
    access = access_of("s3", entry)
    assert access.credentials == {**KEYS, "session_token": "planted"}
    assert access.options == {"endpoint": "https://store:9000", "region": "eu", "path_style": False, "retries": 1}


@pytest.mark.parametrize(("use_ssl", "scheme"), [(None, "https"), (True, "https"), ("false", "http"), (False, "http")])
def test_an_endpoint_may_be_written_without_a_scheme(use_ssl: Any, scheme: str) -> None:
    given = {} if use_ssl is None else {"use_ssl": use_ssl}
    access = access_of("s3", {"type": "s3", **KEYS, "endpoint": "store:9000", **given})
    assert access.options == {"endpoint": f"{scheme}://store:9000"}


@pytest.mark.parametrize(
    "entry",
    [
        ACCOUNT,
        {"service_account_json": msgspec.json.encode({**ACCOUNT, "type": "service_account"}).decode()},
        {"service_account_json": {**ACCOUNT, "type": "service_account"}},
    ],
)
def test_a_service_account(entry: dict[str, Any]) -> None:
    """The type of the credential is not the type that stands in Google's key file."""
    credentials = dict(access_of("gs", {**entry, "type": "gcs_service_account"}).credentials)
    if "service_account_json" in credentials:
        credentials = msgspec.json.decode(credentials["service_account_json"])
    assert credentials == {**ACCOUNT, "type": "service_account"}


def test_a_token_for_google() -> None:
    assert access_of("gs", {"type": "google_oauth", "access_token": "t"}).credentials == {"token": "t"}


@pytest.mark.parametrize(
    ("entry", "credentials", "options"),
    [
        ({"account_name": "acc", "account_key": "k"}, {"account_key": "k"}, {"account": "acc"}),
        ({"storage_account": "acc", "sas": "s"}, {"sas_token": "s"}, {"account": "acc"}),
        (
            {"tenant_id": "t", "client_id": "c", "client_secret": "s"},
            {"tenant_id": "t", "client_id": "c", "client_secret": "s"},
            {},
        ),
    ],
)
def test_azure(entry: dict[str, Any], credentials: dict[str, str], options: dict[str, str]) -> None:
    assert access_of("az", {"type": "azure", **entry}) == (credentials, options)


def test_nothing_is_named() -> None:
    assert access_of("s3", None) == access_of("gs", {}) == ({}, {})


def test_a_public_bucket() -> None:
    assert access_of("s3", {"type": "s3", "anonymous": True, "region": "eu"}).options == {
        "anonymous": True, "region": "eu",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("scheme", "auth", "said"),
    [
        ("s3", {"type": "postgres", "db_password": "planted"}, "of type postgres has nothing that opens s3://"),
        ("gs", {"type": "gcs_hmac", "key_id": "x", "secret": "planted"}, "https://storage.googleapis.com"),
        ("az", {"type": "azure", "account": "a"}, "give account_key, sas_token"),
        ("s3", {"a": {"type": "s3", **KEYS}, "b": {"type": "s3", **KEYS}}, "auth has 2 credentials"),
        ("s3", "planted", "has not been resolved"),
    ],
)
def test_what_does_not_fit_is_refused_without_a_value(scheme: str, auth: Any, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        access_of(scheme, auth)
    assert said in str(refused.value)
    assert "planted" not in str(refused.value)
