from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from noetl.playbook import templates
from noetl.playbook.templates import ResultView


@pytest.mark.parametrize(
    "value",
    [False, "", " ", "false", " FALSE ", "False", "0", "no", "No", "none", "None", 0, 0.0, [], {}, None, Decimal(0)],
)
def test_false(value: Any) -> None:
    assert templates.truth(value) is False


@pytest.mark.parametrize(
    "value", [True, "true", "x", "00", "off", "null", "[]", 1, -1, 0.1, [0], {"a": None}, Decimal(1)]
)
def test_true(value: Any) -> None:
    assert templates.truth(value) is True


def test_a_view_is_judged_by_what_it_shows() -> None:
    assert not templates.truth(ResultView({}))
    assert templates.truth(ResultView({"a": 1}))


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        (None, True),
        (True, True),
        (False, False),
        (0, False),
        ("", False),
        ("yes", True),
        ("{{ x == 1 }}", True),
        ("{{ x }}", True),
        ("{{ gone }}", False),
        ("{{ gone.further }}", False),
        ("{{ x == 1 }} ", True),
        ("{% if x %}no{% endif %}", False),
        ("{{ 'no' }}", False),
        ("{{ x > 0 }}{{ x > 0 }}", True),
        ("{{ [] }}", False),
        ("{{ s.status == 'ok' and s.rows }}", True),
    ],
)
def test_conditions(when: Any, holds: bool) -> None:
    assert templates.condition(when, {"x": 1, "s": ResultView({"rows": [1]})}) == (holds, None)


@pytest.mark.parametrize(
    ("when", "reason"),
    [
        ("{{ gone > 1 }}", "'gone' is undefined at line 1, column 1: {{ gone > 1 }}"),
        ("{{ 1 / 0 }}", "division by zero at line 1, column 1: {{ 1 / 0 }}"),
        ("{{ none > 1 }}", "not supported between instances of 'NoneType' and 'int'"),
        ("{{ broken", "at line 1"),
        ("{{ range(10**9) }}", "range() gives at most"),
    ],
)
def test_a_condition_that_raises_does_not_hold_and_says_why(when: str, reason: str) -> None:
    holds, why = templates.condition(when, {})
    assert holds is False
    assert why is not None
    assert reason in why
