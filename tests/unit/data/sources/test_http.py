"""Where in an answer something stands."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.data.sources.http import value_at

ANSWER = {"data": {"items": [{"id": 1}]}, "links": [{"href": "/next"}]}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("", ANSWER),
        ("data.items", [{"id": 1}]),
        ("links.0.href", "/next"),
        ("links.1.href", None),
        ("data.items.id", None),
        ("nothing.at.all", None),
    ],
)
def test_a_path_leads_to_a_value_or_to_nothing(path: str, found: Any) -> None:
    assert value_at(ANSWER, path) == found
