"""postgres: statements on one connection, in one transaction.

`credential` says where the database is, `pool` keeps connections, `rows` makes JSON of what comes back, `statements`
runs them, `effects` makes a second delivery harmless, `faults` names what went wrong. psycopg is imported with the
first call.
"""

from noetl.tools.postgres.tool import PostgresTool

__all__ = ["PostgresTool"]
