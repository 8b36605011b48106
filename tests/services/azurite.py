"""Azure Blob as Microsoft's own emulator plays it. It comes from npm, on demand."""

from __future__ import annotations

import base64
import hashlib
import hmac
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.services.buckets import Bucket, fresh_name
from tests.services.emulator import installed, shared

__all__ = ["ACCOUNT", "account_sas", "azurite_bucket", "azurite_server"]

ACCOUNT = "devstoreaccount1"
# Known to everybody: Azurite's documentation prints it.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_VERSION = "2020-08-04"


@pytest.fixture(scope="session")
def azurite_server() -> Iterator[int]:
    """The port of this run's Azurite."""
    program = installed("azurite")

    def command(_: Path, ports: Sequence[int]) -> Sequence[str]:
        return [
            str(program), "--silent", "--blobHost", "127.0.0.1", "--blobPort", str(ports[0]),
            "--skipApiVersionCheck", "--disableTelemetry", "--inMemoryPersistence",
        ]  # fmt: skip

    with shared("azurite", command) as port:
        yield port


@pytest.fixture
def azurite_bucket(azurite_server: int) -> Bucket:
    """An empty container."""
    name = fresh_name()
    address = f"http://127.0.0.1:{azurite_server}/{ACCOUNT}"
    made = urllib.request.Request(
        f"{address}/{name}?restype=container&{account_sas()}", method="PUT", headers={"Content-Length": "0"}
    )
    with urllib.request.urlopen(made) as answer:
        assert answer.status == 201
    return Bucket(f"az://{name}", {"endpoint": address, "account": ACCOUNT}, {"account_key": KEY})


def account_sas() -> str:
    """A shared access signature for all that the account can do, for an hour."""
    expires = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    signed = "\n".join([ACCOUNT, "rwdlac", "b", "sco", "", expires, "", "", _VERSION, ""])
    signature = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    return urllib.parse.urlencode(
        {"sv": _VERSION, "ss": "b", "srt": "sco", "sp": "rwdlac", "se": expires, "sig": base64.b64encode(signature)}
    )
