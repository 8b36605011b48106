"""Sinks: where the rows of a task go, and exactly what was written there.

`files` writes a directory of the user's or a dataset of the project, `objects` a prefix of a bucket, `kept` payloads of
this installation, `postgres` a table. Each writes beside its target first and moves it there in the end: what is
half-written is never seen, and what is written twice, by a second delivery of the task, is there once.
"""

from noetl.data.sinks.target import Target, target_of
from noetl.data.sinks.written import FileWritten, Written

__all__ = ["FileWritten", "Target", "Written", "target_of"]
