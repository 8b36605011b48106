"""Rows as COPY reads them."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa

from noetl.data.sinks.postgres import csv_text


def test_nulls_are_nothing_and_everything_else_is_exact() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "text": ['a "b"', "", None],
            "number": [0.1, None, 1e300],
            "money": pa.array([Decimal("12345678901234567890.12"), None, Decimal("0.10")], pa.decimal128(38, 2)),
            "at": pa.array([datetime(2024, 1, 2, 3, 4, 5, 6, UTC), None, None], pa.timestamp("us", "UTC")),
            "many": [[1, 2], [], None],
            "raw": [b"\x00\xff", b"", None],
        }
    )
    assert csv_text(batch, 3).decode().splitlines() == [
        '3,"a ""b""","0.1","12345678901234567890.12","2024-01-02 03:04:05.000006Z","[1,2]","\\x00ff"',
        '3,"",,,,"[]","\\x"',
        '3,,"1e+300","0.10",,,',
    ]
