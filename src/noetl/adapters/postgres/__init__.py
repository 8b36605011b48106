"""Postgres: one database that any number of processes on any number of machines share.

address      where it is, and how to say so without the password
database     connections that are kept, and works that are tried again when one is lost
migrations   the schema `noetl`, numbered files that never change
writer       what happens inside one transaction of an append
commits      the appends of one process, committed in groups
wakeups      who is told that the log has grown
ledger, outbox, leases, catalog, credentials, tokens, projections    the ports
"""
