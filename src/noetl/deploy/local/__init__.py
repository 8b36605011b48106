"""The whole stack on one machine: Postgres, NATS, a server, a publisher, projectors and workers, without containers.

A supervisor starts them in order, restarts what dies and stops them in order. What lives is told by locks that the
processes hold themselves, so that a supervisor that was killed leaves nothing behind that is not found again.
"""
