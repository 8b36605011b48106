"""S3 as `moto` plays it: everything in the memory of one process, and any credentials will do."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.services.buckets import Bucket, fresh_name
from tests.services.emulator import shared

__all__ = ["SECRET", "moto_bucket", "moto_command", "moto_server", "s3_bucket", "s3_client", "unfinished_uploads"]

SECRET = "planted-secret-of-the-tests"


def moto_command(_: Path, ports: Sequence[int]) -> Sequence[str]:
    return [str(Path(sys.executable).with_name("moto_server")), "-H", "127.0.0.1", "-p", str(ports[0])]


@pytest.fixture(scope="session")
def moto_server() -> Iterator[int]:
    """The port of this run's moto."""
    with shared("moto", moto_command) as port:
        yield port


@pytest.fixture
def moto_bucket(moto_server: int) -> Bucket:
    """An empty bucket."""
    return s3_bucket(moto_server)


def s3_client(port: int, key: str = "tests", secret: str = SECRET) -> Any:
    """The provider's own client, to look at a bucket from the side."""
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3", endpoint_url=f"http://127.0.0.1:{port}", aws_access_key_id=key, aws_secret_access_key=secret,
        region_name="us-east-1", config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
    )  # fmt: skip


def s3_bucket(port: int, key: str = "tests", secret: str = SECRET) -> Bucket:
    """A new bucket on an S3 server."""
    name = fresh_name()
    client = s3_client(port, key, secret)
    client.create_bucket(Bucket=name)
    client.close()
    return Bucket(
        f"s3://{name}",
        {"endpoint": f"http://127.0.0.1:{port}", "region": "us-east-1"},
        {"access_key_id": key, "secret_access_key": secret},
    )


def unfinished_uploads(bucket: Bucket) -> list[str]:
    """The keys of uploads in parts that were begun and not ended."""
    port = int(str(bucket.options["endpoint"]).rpartition(":")[2])
    client = s3_client(port, *bucket.credentials.values())
    found = client.list_multipart_uploads(Bucket=bucket.url.removeprefix("s3://"))
    client.close()
    return [upload["Key"] for upload in found.get("Uploads", [])]
