"""Catalog paths and document digests; the catalog's contract suite has the rules one by one."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.errors import InvalidInput, InvalidName
from noetl.kernel.names.documents import catalog_path, document_digest


@pytest.mark.parametrize("text", ["guide/hello", "/guide/hello", "guide/hello/", "//guide/hello//"])
def test_outer_slashes_do_not_count(text: str) -> None:
    assert catalog_path(text) == "guide/hello"


@pytest.mark.parametrize("text", ["", "/", "a//b", "a/./b", "a\nb", "a\n", "ä", "a b"])
def test_what_is_not_a_path_is_named(text: str) -> None:
    with pytest.raises(InvalidName) as refused:
        catalog_path(text)
    assert repr(text) in str(refused.value)


def test_a_path_has_a_length() -> None:
    assert catalog_path("x" * 512)
    with pytest.raises(InvalidName, match="limit"):
        catalog_path("x" * 513)


@given(st.text())
def test_a_path_reads_as_itself(text: str) -> None:
    try:
        path = catalog_path(text)
    except InvalidName:
        return
    assert catalog_path(path) == path == text.strip("/")


def test_the_digest_is_over_utf8() -> None:
    assert document_digest("größe") == hashlib.sha256("größe".encode()).hexdigest()
    with pytest.raises(InvalidInput, match="surrogate"):
        document_digest("\ud800")
