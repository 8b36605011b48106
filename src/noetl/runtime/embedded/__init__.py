"""The embedded runtime: driver, queue and worker in one process, over one ledger file."""
