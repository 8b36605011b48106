"""The host of slots that Spark is: the same suite as the worker host's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noetl.settings import Settings, Spark
from tests.contracts.slot_host import Ground, SlotHostContract, ground

SETTINGS = Settings(spark=Spark(master="local[2]"))


class TestSparkHost(SlotHostContract):
    engine = "spark"

    @pytest.fixture
    async def on(self, tmp_path: Path, our_spark: None, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ground]:
        # A reduce cannot ask for Spark; it goes there when it is large.
        monkeypatch.setattr("noetl.runtime.stages.spark_host.is_worth_it", lambda *_, **__: True)
        async with ground(tmp_path, self.engine, SETTINGS) as made:
            yield made
