"""duckdb: SQL in this process, in a thread of its own for each database.

`attached` makes other databases and cloud storage known by alias, `session` runs statements in the thread.
The library is imported with the first call.
"""

from noetl.tools.duckdb.tool import DuckdbTool

__all__ = ["DuckdbTool"]
