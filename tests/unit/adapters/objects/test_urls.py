"""Addresses, options and credentials of object stores, as far as nothing has to answer."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from noetl.adapters.objects.clients import make_clients
from noetl.adapters.objects.cloud import CloudObjectStore
from noetl.adapters.objects.faults import Place
from noetl.adapters.objects.options import AzureOptions, GoogleOptions, Options, S3Options, read_options
from noetl.adapters.objects.urls import open_store
from noetl.errors import InvalidInput, InvalidName

SECRET = "planted-secret"
KEYS = {"access_key_id": "key", "secret_access_key": SECRET}


async def test_a_directory(tmp_path: Path) -> None:
    store = await open_store(f"file://{tmp_path}/with%20space")
    assert await store.put("a/b", b"x") is True
    assert (tmp_path / "with space" / "a" / "b").read_bytes() == b"x"


async def test_memory_is_each_callers_own() -> None:
    one, two = await open_store("memory://"), await open_store("memory://")
    await one.put("key", b"x")
    assert await two.head("key") is None


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "there is no object store for no scheme"),
        ("/tmp/objects", "there is no object store for no scheme"),
        ("s4://bucket", "there is no object store for s4 (known are az, file, gs, memory, s3)"),
        ("s3://", "'' is not the name of a bucket"),
        ("s3:///prefix", "'' is not the name of a bucket"),
        ("s3://buck et", "'buck et' is not the name of a bucket"),
        ("s3://bucket/../other", "has the segment '..'"),
        ("s3://bucket/a//b", "has an empty segment"),
        ("s3://bucket:80", "has a user, a port, a query or a fragment"),
        ("s3://bucket?endpoint=x", "has a user, a port, a query or a fragment"),
        ("s3://[", "is not a url"),
        ("file://host/path", "'file://host/path' is no directory of this machine"),
        ("memory://somewhere", "objects in memory have no address"),
    ],
)
async def test_addresses_that_are_none(url: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        await open_store(url)
    assert message in str(caught.value)


async def test_a_secret_in_an_address_is_not_repeated() -> None:
    with pytest.raises(InvalidInput, match="credentials are given apart") as caught:
        await open_store(f"s3://key:{SECRET}@bucket")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endpiont": "http://x"}, "s3://bucket has no option 'endpiont' (did you mean 'endpoint'?)"),
        ({"account": "x"}, "s3://bucket has no option 'account'"),
        ({"endpoint": "not a url"}, "endpoint is an address that begins with https:// or http://"),
        ({"endpoint": "ftp://host"}, "endpoint is an address that begins with https:// or http://"),
        ({"endpoint": "http://host:port"}, "endpoint is not an address"),
        ({"endpoint": f"http://user:{SECRET}@host"}, "endpoint has neither a user nor a query"),
        ({"timeout": "soon"}, "'soon' is not a duration"),
        ({"retries": -1}, "retries is 0 or more"),
        ({"path_style": "perhaps"}, "`$.path_style`"),
        ({"create_only": "maybe"}, "`$.create_only`"),
        ({"ca_file": "no/such.pem"}, "ca_file 'no/such.pem' cannot be read"),
    ],
)
async def test_options_that_are_wrong(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        await open_store("s3://bucket", options, KEYS)
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)


def test_options_may_be_text() -> None:
    read = read_options(S3Options, {"timeout": "2m", "retries": "3", "path_style": "true"}, "s3://bucket")
    assert (read.timeout, read.retries, read.path_style) == (120.0, 3, True)


@pytest.mark.parametrize(
    ("url", "credentials", "message"),
    [
        ("s3://bucket", {"access_key_id": SECRET}, "credentials for s3 lack secret_access_key (give both, or neither)"),
        ("s3://bucket", {**KEYS, "sesion_token": SECRET}, "have no 'sesion_token' (did you mean 'session_token'?)"),
        ("gs://bucket", {"secret": SECRET}, "credentials for gs are neither a token nor a service account"),
        ("az://container", {"account_key": SECRET, "token": SECRET}, "incomplete or of several kinds"),
        ("az://container", {"client_id": SECRET}, "incomplete or of several kinds"),
        ("az://container", {"key": SECRET}, "credentials for az have no 'key'"),
        ("memory://", {"key": SECRET}, "memory:// takes no credentials (remove key)"),
    ],
)
async def test_credentials_that_are_incomplete(url: str, credentials: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        await open_store(url, None, credentials)
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)


async def test_credentials_and_anonymous_exclude_each_other() -> None:
    with pytest.raises(InvalidInput, match="which is to be used anonymously"):
        await open_store("s3://bucket", {"anonymous": True}, KEYS)


async def link(url: str, options: Options, credentials: dict[str, str]) -> str:
    """A signed link, for which nobody has to answer."""
    clients = await make_clients(url.partition("://")[2], options, credentials)
    return await CloudObjectStore(clients, Place(url=url)).signed_url("key", expires_in=timedelta(minutes=1))


@pytest.mark.parametrize(
    ("options", "begin"),
    [
        ({}, "https://bucket.s3.eu-north-1.amazonaws.com/key?"),
        ({"path_style": True}, "https://s3.eu-north-1.amazonaws.com/bucket/key?"),
        ({"endpoint": "http://host:9000"}, "http://host:9000/bucket/key?"),
        ({"endpoint": "http://host:9000", "path_style": False}, "http://bucket.host:9000/key?"),
    ],
)
async def test_where_the_bucket_stands_in_an_s3_address(options: dict[str, object], begin: str) -> None:
    chosen = read_options(S3Options, {"region": "eu-north-1", **options}, "s3://bucket")
    signed = await link("s3://bucket", chosen, KEYS)
    assert signed.startswith(begin)
    assert "X-Amz-Signature=" in signed
    assert SECRET not in signed


async def test_a_service_account_signs() -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    fields = {"client_email": "tests@noetl.invalid", "private_key_id": "1", "private_key": pem}
    for credentials in (fields, {"service_account_json": msgspec.json.encode(fields).decode()}):
        signed = await link("gs://bucket", GoogleOptions(), credentials)
        assert signed.startswith("https://storage.googleapis.com/bucket/key?")
        assert "X-Goog-Signature=" in signed


async def test_an_azure_key_signs() -> None:
    signed = await link("az://container", AzureOptions(account="acme"), {"account_key": "c2VjcmV0"})
    assert signed.startswith("https://acme.blob.core.windows.net/container/key?")
    assert "sig=" in signed


async def test_a_prefix_leaves_less_room_for_keys() -> None:
    clients = await make_clients("bucket", S3Options(region="eu-north-1"), KEYS)
    store = CloudObjectStore(clients, Place(url="s3://bucket"), prefix="a-prefix")
    with pytest.raises(InvalidName, match="has more than 1024 bytes with its prefix"):
        await store.head("/".join(["n" * 200] * 5 + ["n" * 15]))


def test_the_library_is_loaded_only_for_a_bucket() -> None:
    code = "import sys, noetl.adapters.objects.urls; sys.exit('obstore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
