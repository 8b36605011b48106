"""Whether a part of a document mentions something."""

from __future__ import annotations

import re
from typing import Any

import pytest

from noetl.playbook.document import Task
from noetl.playbook.mentions import mentions

WORD = re.compile(rb"\{\{|secret")


@pytest.mark.parametrize(
    "part",
    [
        "{{ x }}",
        {"deep": [{"in": ("it", "the secret")}]},
        Task(name="a", kind="python", fields={"code": "print('{{ x }}')"}),
        {1.5: "{{ x }}"},
        {("a", "b"): "secret"},
        ["\ud800", "secret"],
        {"name of a secret": None},
    ],
)
def test_a_word_is_found_wherever_it_stands(part: Any) -> None:
    assert mentions(part, WORD)


@pytest.mark.parametrize("part", ["", None, {}, {"a": ["b", 1, 2.5, True]}, {None: "\ud800"}])
def test_what_is_not_there_is_not_found(part: Any) -> None:
    assert not mentions(part, WORD)
