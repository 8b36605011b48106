"""Sealed chunks: sizes that can be told from outside, and a format that stays what it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.errors import IntegrityMismatch
from noetl.tools.secrets.chunks import CHUNK_BYTES, HEADER_BYTES, Opener, Sealer, plain_size, read_header
from noetl.tools.secrets.keys import make_key

KEY = make_key(b"k" * 32)
# Written by this format's first version: "content" for tenant acme under the name a/b. It must open for ever.
PINNED = (
    "4e4f45544c454e4301000000000000002817154a82205c858199b2c960a5cff5b2574214796d2860dc1ebcfcd67e87d6c0b5"
    "9448720407302356d997c5a9abe2bb4cdebc34b1060f427173e53e1da4"
)


def sealed(content: bytes, tenant: str = "acme", name: str = "a/b") -> bytes:
    sealer = Sealer(KEY, tenant, name)
    return sealer.feed(content) + sealer.finish()


def opened(data: bytes, tenant: str = "acme", name: str = "a/b") -> bytes:
    header = read_header(data)
    assert header is not None
    assert header.key_id == KEY.id
    opener = Opener(KEY, tenant, name, header)
    return opener.feed(data[HEADER_BYTES:]) + opener.finish()


@given(st.integers(0, 3 * CHUNK_BYTES + 3))
def test_the_size_of_the_content_can_be_told_from_the_size_of_the_object(size: int) -> None:
    data = sealed(bytes(size))
    assert plain_size(len(data)) == size
    assert opened(data) == bytes(size)


@given(st.lists(st.integers(0, 2 * CHUNK_BYTES), max_size=6))
def test_how_it_is_fed_makes_no_difference(sizes: list[int]) -> None:
    sealer = Sealer(KEY, "acme", "a/b")
    data = b"".join([*(sealer.feed(bytes([7]) * size) for size in sizes), sealer.finish()])
    assert opened(data) == bytes([7]) * sum(sizes)


@pytest.mark.parametrize(("tenant", "name"), [("other", "a/b"), ("acme", "a/c")])
def test_tenant_and_name_are_part_of_it(tenant: str, name: str) -> None:
    with pytest.raises(IntegrityMismatch, match=f"object '{name}' is damaged: chunk 0"):
        opened(sealed(b"content"), tenant, name)


@pytest.mark.parametrize("data", [b"", b"NOETLENC", b"x" * 100, b"NOETLENC\x02" + b"x" * 100])
def test_what_is_not_sealed_has_no_header(data: bytes) -> None:
    assert read_header(data) is None


@pytest.mark.parametrize("size", [0, 1, HEADER_BYTES, HEADER_BYTES + 15])
def test_what_is_too_short_holds_nothing(size: int) -> None:
    assert plain_size(size) == 0


def test_what_was_sealed_by_an_earlier_release_opens() -> None:
    assert opened(bytes.fromhex(PINNED)) == b"content"
