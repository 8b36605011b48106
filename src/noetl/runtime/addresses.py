"""What is behind a `noetl://` address: stored bytes, or the result of a step."""

from __future__ import annotations

from typing import Any

from noetl.errors import AccessRefused, InvalidName, NotFound
from noetl.kernel.lazy import plain
from noetl.kernel.names import LegacyResult, PayloadName, ResultCoordinates, ResultName, parse
from noetl.runtime.keeping import Keeper
from noetl.runtime.loading import Loader
from noetl.tools.values import BadField

__all__ = ["Addresses"]

_PAYLOADS = "payloads"


class Addresses:
    """Reads and keeps for the tasks of one tenant and project."""

    def __init__(self, keeper: Keeper, loader: Loader, tenant: str, project: str) -> None:
        self._keeper = keeper
        self._payloads = keeper.payloads
        self._loader = loader
        self._tenant = tenant
        self._place = f"noetl://{tenant}/{project}/{_PAYLOADS}"

    async def read(self, uri: str) -> Any:
        """Bytes, or the value of a result. Raises NotFound, AccessRefused, BadField."""
        try:
            name = parse(uri)
        except InvalidName as error:
            raise BadField(str(error)) from None
        if isinstance(name, PayloadName):
            self._check(name.tenant)
            return await self._payloads.fetch(await self._payloads.ref_of(name))
        if isinstance(name, ResultName):
            self._check(name.coordinates.tenant)
            return await self._result(uri, name.coordinates.execution_id, name.coordinates)
        if isinstance(name, LegacyResult) and name.execution_id.isdecimal():
            return await self._result(uri, int(name.execution_id), name.step)
        raise AccessRefused(f"'{uri}' names neither a payload nor a result, and nothing else is kept here")

    async def store(self, uri: str, data: bytes) -> str:
        """Keep bytes under their digest; the address that has it. Raises BadField, StorageFull, Unavailable."""
        if uri.rstrip("/") != self._place:
            raise BadField(f"'{uri}' cannot be written: bytes are kept under their digest; put them to {self._place}")
        return (await self._payloads.store(data, media_type="application/octet-stream")).uri

    async def _result(self, uri: str, execution_id: int, wanted: ResultCoordinates | str) -> Any:
        if isinstance(wanted, ResultCoordinates):
            ref = await self._loader.stored_at(execution_id, uri)
            if ref is not None:
                return plain(await self._keeper.results.value(ref))
        execution = await self._loader.load(execution_id)
        step = wanted if isinstance(wanted, str) else wanted.step
        state = execution.control.steps.get(step)
        if state is None or state.state != "ended":
            raise NotFound(f"'{uri}' has no result: step '{step}' has not ended")
        if isinstance(wanted, ResultCoordinates) and state.run != wanted.run:
            raise NotFound(f"'{uri}' is not kept any more: step '{step}' has run again")
        value = plain(await self._keeper.result_of(execution, step))
        return value if isinstance(wanted, str) else _part(uri, value, wanted)

    def _check(self, tenant: str) -> None:
        if tenant != self._tenant:
            raise AccessRefused(f"the address belongs to tenant '{tenant}', this execution to '{self._tenant}'")


def _part(uri: str, value: Any, wanted: ResultCoordinates) -> Any:
    """The result of a step, of one of its iterations, or of a task of its pipeline."""
    try:
        if wanted.row is not None:
            value = value["results"][wanted.row]
        return value if wanted.task is None else value["results"][wanted.task]
    except (KeyError, IndexError, TypeError):
        raise NotFound(f"'{uri}' names a part of the result of step '{wanted.step}' that it does not have") from None
