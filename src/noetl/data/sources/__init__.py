"""Sources: what a task reads, as DataFrames.

`open_source` tells the kinds apart; each has a module. What Spark reads as it lies (Parquet, ORC, CSV, JSON lines,
text, tables, Postgres by partitions) it reads itself. All else, such as pages of a service, rows and stored results,
becomes Parquet in the task's own directory first, a batch at a time: the driver's memory does not grow with rows.
"""

from noetl.data.sources.opening import open_source
from noetl.data.sources.reading import Frame, Reading

__all__ = ["Frame", "Reading", "open_source"]
