"""What is behind a `noetl://` address: stored bytes, or the result of a step."""

from __future__ import annotations

from typing import Any

import msgspec
import zstandard

from noetl.errors import InvalidInput, InvalidName, NotFound, Unavailable
from noetl.kernel.event import Json
from noetl.kernel.names import LegacyResult, PayloadName, ResultCoordinates, ResultName, parse
from noetl.payloads.store import PayloadStore
from noetl.runtime.execution import Execution, result_of
from noetl.runtime.loading import Loader
from noetl.tools.base import Call
from noetl.tools.values import BadField

__all__ = ["Addresses"]

_PAYLOADS = "payloads"


class Addresses:
    """Reads and keeps for the tasks of one tenant and project."""

    def __init__(self, payloads: PayloadStore, loader: Loader, tenant: str, project: str) -> None:
        self._payloads = payloads
        self._loader = loader
        self._tenant = tenant
        self._place = f"noetl://{tenant}/{project}/{_PAYLOADS}"

    async def resolve(self, uri: str, call: Call) -> Any:
        """What a task asks for."""
        return await self.read(uri)

    async def read(self, uri: str) -> Any:
        """Bytes, or the value of a result. Raises NotFound, Unavailable, BadField."""
        try:
            name = parse(uri)
        except InvalidName as error:
            raise BadField(str(error)) from None
        if isinstance(name, PayloadName):
            self._check(name.tenant)
            return _unwrapped(await self._payloads.fetch(await self._payloads.ref_of(name)))
        if isinstance(name, ResultName):
            self._check(name.coordinates.tenant)
            return await self._result(uri, name.coordinates.execution_id, name.coordinates)
        if isinstance(name, LegacyResult) and name.execution_id.isdecimal():
            return await self._result(uri, int(name.execution_id), name.step)
        raise Unavailable(f"'{uri}' names neither a payload nor a result, and nothing else is kept here")

    async def store(self, uri: str, data: bytes, call: Call) -> str:
        """Keep bytes under their digest; the address that has it. Raises BadField, StorageFull, Unavailable."""
        if uri.rstrip("/") != self._place:
            raise BadField(f"'{uri}' cannot be written: bytes are kept under their digest; put them to {self._place}")
        if _is_result(data):
            data = zstandard.ZstdCompressor().compress(data)  # so that it is not taken for a result of ours
        return (await self._payloads.store(data, media_type="application/octet-stream")).uri

    async def _result(self, uri: str, execution_id: int, wanted: ResultCoordinates | str) -> Any:
        execution = await self._loader.load(execution_id)
        step = wanted if isinstance(wanted, str) else wanted.step
        state = execution.control.steps.get(step)
        if state is None or state.state != "ended":
            raise NotFound(f"'{uri}' has no result: step '{step}' has not ended")
        if isinstance(wanted, str):
            return result_of(execution, step)
        if state.run != wanted.run:
            raise NotFound(f"'{uri}' is not kept any more: step '{step}' has run again")
        return _part(uri, execution, wanted)

    def _check(self, tenant: str) -> None:
        if tenant != self._tenant:
            raise Unavailable(f"the address belongs to tenant '{tenant}', this execution to '{self._tenant}'")


def _part(uri: str, execution: Execution, wanted: ResultCoordinates) -> Any:
    """The result of a step, of one of its iterations, or of a task of its pipeline."""
    value = result_of(execution, wanted.step)
    try:
        if wanted.row is not None:
            value = value["results"][wanted.row]
        return value if wanted.task is None else value["results"][wanted.task]
    except (KeyError, IndexError, TypeError):
        raise NotFound(f"'{uri}' names a part of the result of step '{wanted.step}' that it does not have") from None


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A result as an event keeps it in the payload store."""

    class Result(msgspec.Struct, frozen=True):
        status: str
        context: Any

    result: Result


def _unwrapped(data: bytes) -> bytes | Json:
    return msgspec.json.decode(data, type=_Stored).result.context if _is_result(data) else data


def _is_result(data: bytes) -> bool:
    if not data.startswith(b'{"result":{'):
        return False
    try:
        msgspec.json.decode(data, type=_Stored)
    except (msgspec.DecodeError, InvalidInput):
        return False
    return True
