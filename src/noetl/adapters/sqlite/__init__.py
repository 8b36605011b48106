"""SQLite: the embedded default. One file, many processes, one writer at a time."""

from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.ledger import SqliteLedger

__all__ = ["Database", "SqliteLedger"]
