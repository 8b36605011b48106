"""What a sweep of the store goes by: which object a key is, which objects bytes name, and when one is dead.

It is the same whoever sweeps, one process or the executors of a Spark job. Nothing here opens a store or reads a clock.
"""

from __future__ import annotations

__all__: list[str] = []
