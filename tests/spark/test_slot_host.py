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
    async def on(self, tmp_path: Path, our_spark: None) -> AsyncIterator[Ground]:
        async with ground(tmp_path, self.engine, SETTINGS) as made:
            yield made
