"""Google Cloud Storage as fake-gcs-server plays it, with the XML writes it lacks. It is built with Go, on demand."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.services.buckets import Bucket, fresh_name
from tests.services.emulator import installed, shared

__all__ = ["fake_gcs_bucket", "fake_gcs_server"]


@pytest.fixture(scope="session")
def fake_gcs_server() -> Iterator[int]:
    """The port of this run's fake-gcs-server."""
    program = installed("fake-gcs-server")

    def command(_: Path, ports: Sequence[int]) -> Sequence[str]:
        return [str(program), str(ports[0])]

    with shared("fake-gcs", command) as port:
        yield port


@pytest.fixture
def fake_gcs_bucket(fake_gcs_server: int) -> Bucket:
    """An empty bucket."""
    name, address = fresh_name(), f"http://127.0.0.1:{fake_gcs_server}"
    made = urllib.request.Request(
        f"{address}/storage/v1/b?project=tests",
        data=json.dumps({"name": name}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(made) as answer:
        assert answer.status == 200
    return Bucket(f"gs://{name}", {"endpoint": address}, {"token": "planted-token-of-the-tests"})
