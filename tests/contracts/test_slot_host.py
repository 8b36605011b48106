"""The host of slots that this process is."""

from __future__ import annotations

from tests.contracts.slot_host import SlotHostContract


class TestWorkerHost(SlotHostContract):
    engine = "worker"
