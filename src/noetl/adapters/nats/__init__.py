"""NATS JetStream: the fabric, the command queue and shared values.

JetStream acknowledges before what it stores is on the disk, and a stream can be purged or wiped. So nothing here is
the truth: events are published from the outbox, what is lost is found against the ledger and published again, and
commands are put in again from the log.
"""
