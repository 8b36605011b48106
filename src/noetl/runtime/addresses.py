"""What is behind a `noetl://` address: stored bytes, or the result of a step."""

from __future__ import annotations

from typing import Any

from noetl.engine.control import StepState
from noetl.errors import AccessRefused, InvalidName, NotFound
from noetl.kernel.event import PayloadRef
from noetl.kernel.lazy import plain
from noetl.kernel.names import LegacyResult, PayloadName, ResultCoordinates, ResultName, parse
from noetl.runtime.keeping import Keeper
from noetl.runtime.loading import Loader
from noetl.runtime.storage import payload_ref_of
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
        found = await self.find(uri)
        if not isinstance(found, PayloadRef):
            return plain(found)
        if found.key is None:
            return await self._payloads.fetch(found)
        return plain(await self._keeper.results.value(found))

    async def find(self, uri: str) -> Any:
        """Where it is stored, as a reference, or the value of a result that is not. Raises as `read` does.

        The reference to a result has a key, that to bytes has none.
        """
        try:
            name = parse(uri)
        except InvalidName as error:
            raise BadField(str(error)) from None
        if isinstance(name, PayloadName):
            self._check(name.tenant)
            return await self._payloads.ref_of(name)
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
                return ref
        execution = await self._loader.load(execution_id)
        step = wanted if isinstance(wanted, str) else wanted.step
        state = execution.control.steps.get(step)
        if state is None or state.state != "ended":
            raise NotFound(f"'{uri}' has no result: step '{step}' has not ended")
        if isinstance(wanted, ResultCoordinates) and state.run != wanted.run:
            raise NotFound(f"'{uri}' is not kept any more: step '{step}' has run again")
        if isinstance(wanted, str):
            return _stored(state) or await self._keeper.result_of(execution, step)
        return _part(uri, plain(await self._keeper.result_of(execution, step)), wanted)

    def _check(self, tenant: str) -> None:
        if tenant != self._tenant:
            raise AccessRefused(f"the address belongs to tenant '{tenant}', this execution to '{self._tenant}'")


def _stored(state: StepState) -> PayloadRef | None:
    """The object that is the result of a step; None where the result is in its event, or more than an object."""
    if "reference" not in state.result or state.event_name == "loop.done":
        return None
    ref = payload_ref_of(state.result["reference"])
    return None if ref.key is None else ref


def _part(uri: str, value: Any, wanted: ResultCoordinates) -> Any:
    """The result of a step, of one of its iterations, or of a task of its pipeline."""
    try:
        if wanted.row is not None:
            value = value["results"][wanted.row]
        return value if wanted.task is None else value["results"][wanted.task]
    except (KeyError, IndexError, TypeError):
        raise NotFound(f"'{uri}' names a part of the result of step '{wanted.step}' that it does not have") from None
