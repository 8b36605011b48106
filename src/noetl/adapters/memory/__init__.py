"""Every port in memory: for tests, simulation, and runs that should leave nothing behind.

Each adapter here keeps the whole promise of its port within one process and passes the same contract suite
as the real ones. Nothing in this room touches a disk or a network.
"""
