"""Workers of other processes: they have no database, and ask the server for everything but their own tools.

A queue tells a worker that there is a command, the server's desk gives it out under a lease and takes the report. What
the queue says twice, late or wrongly does no harm: who may run a command is decided by its lease alone.
"""
