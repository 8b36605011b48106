"""A file of documents goes into the catalog whole, or not at all."""

from __future__ import annotations

import pytest

from noetl.adapters.memory.catalog import MemoryCatalog
from noetl.adapters.memory.clock import VirtualClock
from noetl.errors import InvalidDocument, InvalidInput
from noetl.runtime.registration import read_documents, register

HELLO = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: hello, path: guide/hello}
workflow:
  - step: start
    tool: {kind: noop}
"""
BAD = HELLO.replace("kind: noop", "kind: nope")


@pytest.fixture
def catalog() -> MemoryCatalog:
    return MemoryCatalog(VirtualClock(0))


async def test_each_document_keeps_its_own_text(catalog: MemoryCatalog) -> None:
    other = HELLO.replace("guide/hello", "guide/other") + "# the end\n"
    entries = await register(catalog, "acme", read_documents(HELLO + "---\n" + other, "two.yaml"))
    assert [(entry.path, entry.version, entry.kind) for entry in entries] == [
        ("guide/hello", 1, "Playbook"),
        ("guide/other", 1, "Playbook"),
    ]
    assert entries[0].content == HELLO
    assert entries[1].content.endswith("# the end\n")


async def test_one_bad_document_keeps_all_out(catalog: MemoryCatalog) -> None:
    readable = read_documents(HELLO + "---\n" + BAD, "two.yaml")
    assert not readable.ok
    with pytest.raises(InvalidDocument) as refused:
        await register(catalog, "acme", readable)
    assert [problem for problem in refused.value.problems if getattr(problem, "line", 0) > 7]
    assert (await catalog.list("acme")).entries == []


async def test_a_kind_may_be_insisted_on(catalog: MemoryCatalog) -> None:
    readable = read_documents(HELLO, "one.yaml")
    with pytest.raises(InvalidInput, match="guide/hello is a Playbook, not a subscription"):
        await register(catalog, "acme", readable, only="subscription")
    assert len(await register(catalog, "acme", readable, only="playbook")) == 1
