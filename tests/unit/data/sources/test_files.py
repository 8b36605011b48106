"""Objects of a bucket are copied to the task's own directory before anybody reads them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest

from noetl.data.means import Means
from noetl.data.sources.files import _found
from noetl.data.sources.reading import Reading
from noetl.errors import InvalidInput, NotFound
from noetl.payloads.resolver import Caller, Entry, Resolver, Scheme
from noetl.tools.base import Call

OBJECTS = {"s3://b/in/1.csv": b"a\n1\n", "s3://b/in/2.csv": b"a\n2\n", "s3://b/in/notes.txt": b"x"}


class _Bucket:
    """Objects in memory; `auth` is whom they were asked for."""

    auth: Any = None

    async def stream(self, uri: str, caller: Caller) -> AsyncGenerator[bytes, None]:
        self.auth = caller.auth
        if uri not in OBJECTS:
            raise NotFound(f"no object is at '{uri}'")
        yield OBJECTS[uri]

    async def list(self, uri: str, caller: Caller) -> AsyncGenerator[Entry, None]:
        for one, content in OBJECTS.items():
            if one.startswith(uri):
                yield Entry(uri=one, size_bytes=len(content), modified_at="")


def reading(place: Path, bucket: _Bucket | None) -> Reading:
    resolver = None if bucket is None else Resolver({"s3": lambda: cast(Scheme, bucket)})
    call = Call(kind="spark", auth={"key": "k"}, directory=place, scratch=place, resolver=resolver)
    return Reading(call, cast(Means, None), place / "own")


@pytest.mark.parametrize(
    ("uri", "names"),
    [
        ("s3://b/in/*.csv", ["000000-1.csv", "000001-2.csv"]),
        ("s3://b/in/", ["000000-1.csv", "000001-2.csv", "000002-notes.txt"]),
        ("s3://b/in/2.csv", ["000000-2.csv"]),
    ],
)
async def test_what_an_address_names_is_copied_with_the_credential_of_the_task(
    tmp_path: Path, uri: str, names: list[str]
) -> None:
    bucket = _Bucket()
    found, _ = await _found(uri, reading(tmp_path, bucket))
    assert [path.name for path in found] == names
    assert all(path.read_bytes() == OBJECTS[f"s3://b/in/{path.name[7:]}"] for path in found)
    assert bucket.auth == {"key": "k"}


@pytest.mark.parametrize("uri", ["s3://b/none/*.csv", "s3://b/in/3.csv"])
async def test_an_address_of_nothing_is_not_found(tmp_path: Path, uri: str) -> None:
    with pytest.raises(NotFound, match="no object is at"):
        await _found(uri, reading(tmp_path, _Bucket()))


async def test_without_a_way_to_follow_addresses_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="addresses cannot be followed here"):
        await _found("s3://b/in/1.csv", reading(tmp_path, None))
