"""Sweeps of the result tier as Spark jobs, for stores of millions of objects.

Executors list, read and digest; what they find is joined by Spark, and the driver holds nothing that grows with the
store. When an object is dead, or not what it should be, is decided by `noetl.payloads.sweeping`, as it is without
Spark; nothing here deletes anything.
"""

from __future__ import annotations

__all__: list[str] = []
