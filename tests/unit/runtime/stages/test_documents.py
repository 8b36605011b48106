"""The playbooks that plans of stages bring along."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from noetl.errors import InvalidDocument
from noetl.runtime.stages.documents import playbook_of
from noetl.tools import registry

DOCUMENT = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: t, path: t}
workflow:
- step: one
  tool: {kind: own_kind_of_a_stage}
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_user_tools", {})
    playbook_of.cache_clear()
    yield
    playbook_of.cache_clear()


def test_one_is_read_once_for_all_stages() -> None:
    text = DOCUMENT.replace("own_kind_of_a_stage", "noop")
    assert playbook_of(text, "t.yaml") is playbook_of(f"{text}", "t.yaml")
    assert playbook_of(text, "t.yaml") is not playbook_of(text, "other.yaml")


def test_one_that_was_refused_is_read_again_once_its_kind_is_there() -> None:
    with pytest.raises(InvalidDocument, match="own_kind_of_a_stage"):
        playbook_of(DOCUMENT, "t.yaml")
    registry.tool("own_kind_of_a_stage")(lambda: None)
    assert playbook_of(DOCUMENT, "t.yaml").steps["one"].tasks[0].kind == "own_kind_of_a_stage"
