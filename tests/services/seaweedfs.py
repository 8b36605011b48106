"""S3 as SeaweedFS speaks it: a real store on disk that checks signatures and permissions."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from tests.services.buckets import Bucket
from tests.services.emulator import shared, wait_for
from tests.services.moto import SECRET, s3_bucket, s3_client

__all__ = ["READER", "seaweedfs_bucket", "seaweedfs_command", "seaweedfs_server"]

READER = {"access_key_id": "reader", "secret_access_key": "another-planted-secret"}
_IDENTITIES = [
    {"name": "tests", "credentials": [{"accessKey": "tests", "secretKey": SECRET}], "actions": ["Admin"]},
    {
        "name": "reader",
        "credentials": [{"accessKey": READER["access_key_id"], "secretKey": READER["secret_access_key"]}],
        "actions": ["Read", "List"],
    },
]


def seaweedfs_command(root: Path, ports: Sequence[int]) -> Sequence[str]:
    identities = root / "identities.json"
    identities.write_text(json.dumps({"identities": _IDENTITIES}))
    # Each bucket has volumes of its own; one is enough for a test, seven would be made.
    (root / "master.toml").write_text("[master.volume_growth]\ncopy_1 = 1\n")
    s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc = ports
    return [
        str(Path(sys.executable).with_name("weed")), f"-logdir={root}", "server", f"-dir={root}",
        "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-master.port={master}", f"-master.port.grpc={master_grpc}",
        f"-volume.port={volume}", f"-volume.port.grpc={volume_grpc}", "-filer", f"-filer.port={filer}",
        f"-filer.port.grpc={filer_grpc}", "-s3", f"-s3.port={s3}", f"-s3.port.grpc={s3_grpc}",
        "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.config={identities}", "-s3.autoCreateBucket=false",
        "-master.volumeSizeLimitMB=64", "-volume.max=2000", "-master.telemetry=false",
    ]  # fmt: skip


@pytest.fixture(scope="session")
def seaweedfs_server() -> Iterator[int]:
    """The port of this run's SeaweedFS, once it takes objects."""
    with shared("seaweedfs", seaweedfs_command, ports=8) as port:
        wait_for(lambda: takes_objects(port), "SeaweedFS takes no objects")
        yield port


@pytest.fixture
def seaweedfs_bucket(seaweedfs_server: int) -> Bucket:
    """An empty bucket."""
    return s3_bucket(seaweedfs_server)


def takes_objects(port: int) -> bool:
    """It listens before it has volumes to write to."""
    client = s3_client(port)
    try:
        client.create_bucket(Bucket="is-it-ready")
    except ClientError as error:
        if "BucketAlready" not in str(error):
            return False
    except BotoCoreError:
        return False
    try:
        client.put_object(Bucket="is-it-ready", Key="key", Body=b"x")
    except (BotoCoreError, ClientError):
        return False
    finally:
        client.close()
    return True
