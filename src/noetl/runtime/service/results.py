"""What executions have left behind: results, variables, and what templates make of them."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from noetl.engine.scope import Known, Scope
from noetl.errors import InvalidInput, NotFound
from noetl.kernel import canonical
from noetl.kernel.event import Json
from noetl.kernel.names import LegacyResult, PayloadName, ResultName, parse
from noetl.kernel.time import format_time
from noetl.playbook import templates
from noetl.runtime.addresses import Addresses
from noetl.runtime.driver import Origin
from noetl.runtime.execution import Execution
from noetl.runtime.loading import Documents, Loader
from noetl.runtime.service.reading import Reading
from noetl.runtime.service.shapes import (
    LoopResults,
    RenderAnswer,
    RenderRequest,
    Resolved,
    ResultView,
    Variable,
    Variables,
    checked_depth,
    id_of,
)
from noetl.runtime.showing import described
from noetl.runtime.wiring import Embedded
from noetl.tools.values import BadField

__all__ = ["Results"]


class Results:
    """Reads values out of the executions that a reading shows."""

    def __init__(self, reading: Reading, embedded: Embedded, origin: Origin) -> None:
        self._reading = reading
        self._clock = embedded.clock
        self._tenant_id = origin.tenant_id
        self._keeper = embedded.keeper(origin.project_id)
        loader = Loader(embedded.ledger, self._keeper, Documents(()), origin.tenant_id)
        self._addresses = Addresses(self._keeper, loader, origin.tenant_id, origin.project_id)

    async def result(self, execution_id: int, step: str | None = None) -> ResultView:
        """The result of a step, or of the step that gives the execution its own. Raises NotFound."""
        found = await self._reading.state(execution_id)
        control = found.control
        name = step or (found.playbook.final_step if control.final_started else control.last_step)
        if name is None or name not in control.steps or control.steps[name].state != "ended":
            ended = ", ".join(sorted(other for other, state in control.steps.items() if state.state == "ended"))
            what = "no result yet" if name is None else f"no result of step '{name}'"
            raise NotFound(f"execution {execution_id} has {what}", hint=f"steps that ended: {ended or 'none'}")
        value = await self._keeper.result_of(found, name)
        told = described(value, control.steps[name].result.get("reference"))
        return ResultView(
            execution_id=str(execution_id),
            step=name,
            value=told.value,
            ref=told.ref,
            rows=told.rows,
            bytes=told.bytes,
            sha256=told.sha256,
        )

    async def resolve(self, ref: str) -> Resolved:
        """What a `noetl://` address stands for. Raises NotFound, also for one of another tenant."""
        name = parse(ref)
        if isinstance(name, ResultName):
            await self._check(ref, name.coordinates.tenant, name.coordinates.execution_id)
        elif isinstance(name, LegacyResult):
            await self._check(ref, self._tenant_id, id_of(name.execution_id))
        elif isinstance(name, PayloadName):
            await self._check(ref, name.tenant, None)
        else:
            raise InvalidInput(f"'{ref[:200]}' names neither a payload nor a result")
        try:
            value = await self._addresses.read(ref)
        except BadField as error:
            raise InvalidInput(str(error)) from None
        return _resolved(ref, value)

    async def variables(self, execution_id: int) -> Variables:
        """The `ctx` of an execution. Raises NotFound."""
        found = await self._reading.state(execution_id)
        return Variables(execution_id=str(execution_id), variables=found.control.ctx)

    async def variable(self, execution_id: int, name: str) -> Variable:
        """One value of it; dots reach inside mappings. Raises NotFound."""
        value: Any = (await self._reading.state(execution_id)).control.ctx
        for part in name.split("."):
            if not isinstance(value, dict) or part not in value:
                raise NotFound(f"execution {execution_id} has no variable '{name[:200]}'")
            value = value[part]
        return Variable(execution_id=str(execution_id), name=name, value=value)

    async def loop_results(self, execution_id: int, step: str) -> LoopResults:
        """The results of a loop's iterations so far. Raises NotFound for a step that is no loop or never ran."""
        found = await self._reading.state(execution_id)
        control, written = found.control, found.playbook.steps.get(step)
        if written is None or written.loop is None or step not in control.steps:
            loops = ", ".join(name for name, one in found.playbook.steps.items() if one.loop is not None)
            raise NotFound(
                f"execution {execution_id} has no results of a loop '{step}'", hint=f"its loops: {loops or 'none'}"
            )
        running = control.loops.get(step)
        if running is not None:
            stats = {"total": running.total, "success": running.success, "failed": running.failed}
            results = list(found.iterations.get(step, ()))
            return LoopResults(
                execution_id=str(execution_id), step=step, status="RUNNING", results=results, stats=stats
            )
        value = await self._keeper.result_of(found, step)
        said = value if isinstance(value, dict) else {}
        return LoopResults(
            execution_id=str(execution_id),
            step=step,
            status="FAILED" if control.steps[step].outcome == "error" else "COMPLETED",
            results=list(said.get("results") or []),
            stats=dict(said.get("stats") or {}),
        )

    async def render(self, asked: RenderRequest) -> RenderAnswer:
        """Templates with what an execution knows; secrets are not among it. Raises NotFound and InvalidInput."""
        checked_depth([asked.template, asked.extra_context], "the template")
        found = await self._reading.state(id_of(asked.execution_id))
        results = await self._results_named(found, asked.template)
        known = Known(now=format_time(self._clock.now()), results=results, items=found.items)
        scope = Scope(found.control, known)
        names: Json = {**scope.names_for(asked.template), **asked.extra_context}
        host = templates.Host(now=known.now)
        render = templates.render_strict if asked.strict else templates.render_value
        rendered = render(asked.template, names, host=host)
        visible = {*found.control.ctx, *found.control.workload, *names, *asked.extra_context, "ctx", "workload"}
        visible |= {name for name, state in found.control.steps.items() if state.state == "ended"}
        return RenderAnswer(status="ok", rendered=rendered, context_keys=sorted(visible))

    async def _results_named(self, found: Execution, template: Any) -> Json:
        """The whole of those results that the templates name and that are kept elsewhere."""
        ended = {name: state for name, state in found.control.steps.items() if "reference" in state.result}
        wanted = Scope(found.control, Known(now="")).names_for(template).keys() & ended.keys()
        return {name: await self._keeper.whole(ended[name].result["reference"]) for name in wanted}

    async def _check(self, ref: str, tenant_id: str, execution_id: int | None) -> None:
        if tenant_id != self._tenant_id:
            raise NotFound(f"there is nothing behind '{ref[:200]}'")
        if execution_id is not None:
            await self._reading.state(execution_id)


def _resolved(ref: str, value: Any) -> Resolved:
    if isinstance(value, bytes):
        facts: Json = {"ref": ref, "bytes": len(value), "sha256": hashlib.sha256(value).hexdigest()}
        try:
            return Resolved(media_type="text/plain", text=value.decode(), **facts)
        except UnicodeDecodeError:
            encoded = base64.b64encode(value).decode("ascii")
            return Resolved(media_type="application/octet-stream", base64=encoded, **facts)
    data = canonical.encode(value)
    return Resolved(
        ref=ref, media_type="application/json", bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), value=value
    )
