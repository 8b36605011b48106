"""The resolver as an installation wires it: every scheme, and its own stores closed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from noetl.errors import AccessRefused, InvalidInput
from noetl.payloads.resolver import NOBODY, Caller, Resolver, TooLarge
from noetl.runtime.resolver import resolver_of
from noetl.settings import Payloads, Settings, Tools


class Kept:
    """What stands behind noetl:// addresses."""

    async def read(self, uri: str) -> Any:
        return b"bytes" if "payloads" in uri else {"a": 1}

    async def store(self, uri: str, data: bytes) -> str:
        return f"{uri}/sha256/{len(data)}"


def made(settings: Settings | None = None) -> Resolver:
    addresses: Any = Kept
    return resolver_of(settings or Settings(), addresses)


def test_every_scheme_is_there() -> None:
    outside = ("file", "s3", "gs", "gcs", "az", "azure", "abfs", "abfss")
    assert made().schemes == ("noetl", *outside)
    assert resolver_of(Settings()).schemes == outside


async def test_what_is_kept_here() -> None:
    resolver = made()
    assert await resolver.read("noetl://t/p/payloads/sha256/x", limit=5) == b"bytes"
    assert await resolver.read("noetl://t/p/results/1/a", limit=5) == {"a": 1}
    assert [piece async for piece in resolver.stream("noetl://t/p/payloads/sha256/x")] == [b"bytes"]
    assert (await resolver.write("noetl://t/p/payloads", b"xy", overwrite=False)).uri.endswith("/sha256/2")
    with pytest.raises(TooLarge):
        await resolver.read("noetl://t/p/payloads/sha256/x", limit=4)
    with pytest.raises(InvalidInput, match="it is a result"):
        [piece async for piece in resolver.stream("noetl://t/p/results/1/a")]
    with pytest.raises(InvalidInput, match="cannot be listed"):
        resolver.list("noetl://t/p/payloads")
    with pytest.raises(InvalidInput, match="cannot be linked to"):
        await resolver.link("noetl://t/p/payloads/sha256/x", expires_in=timedelta(hours=1))


@pytest.mark.parametrize(
    "payloads",
    [
        Payloads(url="s3://ours/kept", options=("region=eu",)),
        Payloads(routes=("s3=s3://ours/kept",)),
        Payloads(replica="s3://ours/kept", replica_options=("region=eu",)),
    ],
)
async def test_own_buckets_are_closed(payloads: Payloads) -> None:
    with pytest.raises(AccessRefused, match="keeps its payloads"):
        await made(Settings(payloads=payloads)).read("s3://ours/kept/a", NOBODY, limit=1)


async def test_own_directories_are_closed_and_roots_are_open(tmp_path: Path) -> None:
    settings = Settings(payloads=Payloads(url=f"file://{tmp_path}/kept"), tools=Tools(artifact_roots=(str(tmp_path),)))
    caller = Caller(directory=tmp_path / "desk")
    with pytest.raises(AccessRefused, match="keeps its payloads"):
        await made(settings).read(f"file://{tmp_path}/kept/a", caller, limit=1)
    await made(settings).write(f"file://{tmp_path}/other", b"x", caller, overwrite=True)
    assert (tmp_path / "other").read_bytes() == b"x"
