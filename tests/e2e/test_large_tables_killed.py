"""Two hundred megabytes through three steps with an effect after each: killed in the middle, counted from outside."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.scenes import Scene, book
from tests.services.counter import Counting, counting

MAKE = """
import pyarrow as pa
import pyarrow.compute as pc
order = pa.array(range(rows), pa.int64())
customer = pc.binary_join_element_wise("customer-", pc.cast(pc.bit_wise_and(order, 1023), pa.string()), "")
cents = pc.add(pc.bit_wise_and(pc.multiply(order, 7919), 4095), 100)
result = pa.table({"order": order, "customer": customer, "cents": cents})
"""
PRICE = """
import pyarrow.compute as pc
result = orders.append_column("total", pc.multiply(orders["cents"], 3))
"""
SUM = """
import pyarrow.compute as pc
result = {"rows": priced.num_rows, "total": pc.sum(priced["total"]).as_py(), "bytes": priced.nbytes}
"""


@pytest.fixture
def counter() -> Iterator[Counting]:
    with counting() as counted:
        yield counted


def steps(counter: Counting, rows: int) -> list[dict[str, Any]]:
    """Each step does its work and then tells the world outside; not a word about storage."""

    def step(name: str, code: str, following: str | None, **given: Any) -> dict[str, Any]:
        work = {"name": "work", "kind": "python", "input": given, "code": code}
        tell = {"name": "tell", "kind": "http", "method": "POST", "url": f"{counter.url}/{name}", "json": {}}
        back = {"name": "back", "kind": "python", "input": {"work": "{{ work }}"}, "code": "result = work"}
        said: dict[str, Any] = {"step": name, "tool": [work, tell, back]}
        return said if following is None else {**said, "next": {"arcs": [{"step": following}]}}

    return [
        step("make", MAKE, "price", rows=rows),
        step("price", PRICE, "total", orders="{{ make.results.back }}"),
        step("total", SUM, None, priced="{{ price.results.back }}"),
    ]


@pytest.mark.parametrize(("barrier", "rows", "megabytes"), [("false", 5_100_000, 200), ("true", 300_000, 11)])
def test_killed_in_the_middle_the_set_of_effects_is_exact(
    barrier: str, rows: int, megabytes: int, scene: Scene, counter: Counting
) -> None:
    env = {"NOETL_EFFECTS__BARRIER": barrier}
    file = scene.write(book("large", *steps(counter, rows)))
    counter.hold("/price")
    process = scene.home.start("run", file, env=env)
    counter.wait_held()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    counter.release()
    (execution,) = scene.roots()
    document = scene.home.json("resume", execution, env=env)
    assert document["status"] == "COMPLETED", document
    found = document["result"]["results"]["back"]
    assert found["rows"] == rows
    assert found["bytes"] > megabytes * 1_000_000
    assert found["total"] == sum(((n * 7919) & 4095) + 100 for n in range(rows)) * 3
    assert set(counter.calls) == {"/make", "/price", "/total"}
    assert len(counter.keys) == 3
    # The call that was under way when the process was killed is made again, with its own key, and no other is.
    assert counter.calls == {"/make": 1, "/price": 2, "/total": 1}
    assert scene.home.json("verify", execution)["parity"]
