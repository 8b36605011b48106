"""The event lake: every event of a ledger as Parquet files, for questions that are about all of them.

`layout` says what a file holds and how it is called, `log` which files there are: the lake's own log of commits is the
only list that a reader believes. `writing` makes files of rows, `tasks` does so on executors, `syncing` copies what the
ledger has and the lake has not; `iceberg` is another place to copy to. `reading` gives rows back, `checking` proves
them, `repairing` makes damaged files again, `compacting` makes large files of small ones. The lake is a copy: whoever
deletes it can have it made again, and nothing else may depend on it being there.
"""

from noetl.data.lake.log import Commit, File, Lake

__all__ = ["Commit", "File", "Lake"]
