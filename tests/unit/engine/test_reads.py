"""Which results the engine will ask for again, as far as the document tells."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.engine.reads import Reads
from noetl.kernel.event import Json
from noetl.playbook.parse import load
from tests.unit.runtime.workshop import as_text, book, step

KEPT: Json = {"context": {"n": 1, "inner": {"a": 1}}, "reference": {"selected": ["inner.a"]}}


def reads(*steps: Json) -> Reads:
    return Reads(load(as_text(book(step("big", "other"), *steps)), "t.yaml"))


def arcs(when: str) -> Json:
    return {"next": {"arcs": [{"step": "end", "when": when}]}}


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({}, False),
        ({"give": {"all": "{{ big }}"}}, False),
        (arcs("{{ big.n == 1 }}"), False),
        (arcs("{{ big._ref is defined and big.status == 'ok' }}"), False),
        (arcs("{{ big.inner.a == 1 }}"), False),
        (arcs("{{ big.inner.b == 1 }}"), True),
        (arcs("{{ big.rows[1100][0] == 1 }}"), True),
        (arcs("{{ big | length > 1 }}"), True),
        ({"set": {"ctx.deep": {"list": ["{{ big.rows }}"]}}}, True),
        ({"next": {"arcs": [{"step": "end", "set": {"ctx.x": "{{ big.rows }}"}}]}}, True),
        ({"loop": {"in": "{{ big.rows }}", "iterator": "row"}}, True),
        ({"loop": {"in": [1], "iterator": "row", "spec": {"mode": "parallel", "max_in_flight": "{{ big.m }}"}}}, True),
        ({"spec": {"policy": {"admit": {"rules": [{"when": "{{ result.rows }}", "then": {"allow": True}}]}}}}, True),
        ({"spec": {"policy": {"admit": {"rules": [{"when": "{{ result.n }}", "then": {"allow": True}}]}}}}, False),
        ({"spec": {"policy": {"admit": {"rules": [{"when": "{{ output.data }}", "then": {"allow": True}}]}}}}, True),
        ({"tool": {"kind": "noop", "result": "{{ big }}"}}, True),
        ({"tool": {"kind": "noop", "result": "{{ result.rows }}"}}, True),
        (arcs("{{ output.data.rows and result.rows and event.payload }}"), False),  # of its own step, when that ends
    ],
)
def test_what_reads_more_than_is_at_hand(more: dict[str, Any], wanted: bool) -> None:
    assert reads(step("other", **more), step("end")).more_than("big", KEPT) == wanted
