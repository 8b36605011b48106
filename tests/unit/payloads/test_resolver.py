"""The registry of schemes: each is made once, when it is first needed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from noetl.errors import InvalidInput
from noetl.payloads.resolver import NOBODY, Caller, Resolver, scheme_of


class Echo:
    """A scheme that says what it was asked."""

    async def read(self, uri: str, caller: Caller, *, limit: int) -> Any:
        return uri, caller, limit

    async def link(self, uri: str, caller: Caller, *, expires_in: timedelta) -> str:
        return f"{uri}?until={expires_in}"


def resolver() -> tuple[Resolver, list[str]]:
    made: list[str] = []

    def cloud() -> Any:
        made.append("cloud")
        return Echo()

    def files() -> Any:
        made.append("files")
        return Echo()

    return Resolver({"s3": cloud, "gs": cloud, "file": files}), made


async def test_a_scheme_is_made_once_for_all_its_names() -> None:
    known, made = resolver()
    assert (known.schemes, made) == (("s3", "gs", "file"), [])
    for uri in ("s3://b/k", "S3://b/k", "gs://b/k"):
        assert await known.read(uri, limit=5) == (uri, NOBODY, 5)
    assert made == ["cloud"]


async def test_everything_is_passed_on() -> None:
    known, _ = resolver()
    caller = Caller(auth={"token": "x"})
    assert (await known.read("file:///a", caller, limit=1))[1] is caller
    assert await known.link("file:///a", expires_in=timedelta(hours=1)) == "file:///a?until=1:00:00"


@pytest.mark.parametrize("uri", ["ftp://user:secret@host/x", "/a/path", "", "s3:b/k", "se cret://x"])
async def test_other_addresses_are_refused_and_not_repeated(uri: str) -> None:
    known, made = resolver()
    with pytest.raises(InvalidInput) as refused:
        await known.read(uri, limit=1)
    assert "use one of s3://, gs://, file://" in str(refused.value)
    assert "cret" not in str(refused.value)
    assert made == []


@pytest.mark.parametrize(
    ("uri", "scheme"), [("s3://b", "s3"), ("GS://b", "gs"), ("a b://c", ""), ("://", ""), ("é://b", "")]
)
def test_the_scheme_of_an_address(uri: str, scheme: str) -> None:
    assert scheme_of(uri) == scheme
