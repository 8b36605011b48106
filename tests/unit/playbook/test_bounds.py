from __future__ import annotations

import pytest

from noetl.playbook.bounds import ATTEMPTS, COUNT, DELAY, DURATION, FRAME, SIZE, Bound, OutOfBounds


@pytest.mark.parametrize(
    ("bound", "value", "result"),
    [
        (COUNT, 4, 4), (COUNT, "4", 4), (COUNT, 4.0, 4), (ATTEMPTS, " 3 ", 3),
        (DURATION, 30, 30.0), (DURATION, "250ms", 0.25), (DURATION, "2h", 7200.0),
        (DELAY, 0, 0.0), (DELAY, "0.5", 0.5), (SIZE, "64MiB", 64 * 2**20), (SIZE, 0, 0),
        (FRAME["process"], "frame", "frame"), (FRAME["verify_ipc"], "True", True), (FRAME["max_bytes"], "1KB", 1000),
    ],
)  # fmt: skip
def test_a_value_within_bounds_gets_its_final_type(bound: Bound, value: object, result: object) -> None:
    assert bound.read(value) == result
    assert type(bound.read(value)) is type(result)


@pytest.mark.parametrize(
    ("bound", "value"),
    [
        (COUNT, 0), (COUNT, True), (COUNT, 1.5), (COUNT, "many"), (COUNT, None), (COUNT, [1]), (COUNT, 1e300),
        (DURATION, 0), (DURATION, "soon"), (DELAY, -1), (DELAY, float("nan")), (FRAME["max_bytes"], 0),
        (FRAME["process"], "batch"), (FRAME["verify_ipc"], 1), (FRAME["process"], {}),
    ],
)  # fmt: skip
def test_anything_else_is_out_of_bounds(bound: Bound, value: object) -> None:
    with pytest.raises(OutOfBounds, match="must be"):
        bound.read(value)
