"""The FramePlane contract, by direct call and over HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from noetl.data.frame.protocol import FramePlane
from noetl.runtime.stages.client import RemotePlane
from noetl.runtime.stages.door import Door
from noetl.runtime.stages.loopback import Loopback
from tests.contracts.frame_plane import FramePlaneContract, Reach
from tests.stagework import STAGE, Stage


class TestKeptPlane(FramePlaneContract):
    @pytest.fixture
    def reach(self) -> Reach:
        @contextlib.asynccontextmanager
        async def directly(stage: Stage) -> AsyncIterator[FramePlane]:
            yield stage.keeper.plane

        return directly


class TestRemotePlane(FramePlaneContract):
    @pytest.fixture
    def reach(self) -> Reach:
        @contextlib.asynccontextmanager
        async def over_http(stage: Stage) -> AsyncIterator[FramePlane]:
            door = Door()
            listener = Loopback(door)
            token = door.keep(STAGE, stage.keeper.plane)
            try:
                async with RemotePlane(await listener.url(), STAGE, token) as plane:
                    yield plane
            finally:
                door.leave(token)
                await listener.close()

        return over_http
