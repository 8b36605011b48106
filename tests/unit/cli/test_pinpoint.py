"""Where in a playbook's file an error has its cause."""

from __future__ import annotations

import pytest

from noetl.cli.pinpoint import Place, find_place
from noetl.kernel.event import Json
from noetl.playbook.parse import load

BOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: a, path: a}
workflow:
  - step: load
    tool:
      kind: spark
      sql: |
        SELECT id,
          cent, '{{ workload.x }}' FROM orders
        WHERE id > 'a'
"""


@pytest.mark.parametrize(
    ("told", "place"),
    [
        ({"line": 1, "column": 8}, Place(line=9, column=16, width=2)),
        ({"line": 2, "column": 3}, Place(line=10)),  # what is rendered may have moved it
        ({"line": 3, "column": 10}, Place(line=11, column=18, width=1)),
        ({"line": 3}, Place(line=11)),
        ({"line": 3, "column": 99}, Place(line=11)),
    ],
)
def test_the_place_in_a_query(told: Json, place: Place) -> None:
    playbook = load(BOOK, "a.yaml")
    step = playbook.steps["load"]
    error = {"code": "SPARK_ANALYSIS", "message": "no", **told}
    assert find_place(playbook, BOOK, step, step.tasks[0], error) == place
