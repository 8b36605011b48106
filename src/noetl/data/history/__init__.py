"""History as tables: what the whole organisation looked like at a moment, in SQL.

The tables are read from the event lake: `events` as they are, states by the same fold as everywhere (`data.bulk`),
facts from what was counted for ranges of events (`facts`). A moment cuts all of them alike. Nothing here writes but
`make`, which keeps parts of facts beside the lake, where they can be deleted at any time.
"""

from noetl.data.history.facts.making import Made, make
from noetl.data.history.history import History
from noetl.data.history.tables import TABLES, Column, Table

__all__ = ["TABLES", "Column", "History", "Made", "Table", "make"]
