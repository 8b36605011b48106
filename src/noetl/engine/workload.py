"""The workload: the document's defaults under the request's payload, fixed when an execution starts."""

from __future__ import annotations

from collections.abc import Mapping

from noetl.kernel.event import Json
from noetl.playbook import templates
from noetl.playbook.document import Playbook
from noetl.playbook.templates import Host

__all__ = ["workload_of"]


def workload_of(
    playbook: Playbook, payload: Json, identity: Json, host: Host, env: Mapping[str, str]
) -> tuple[Json, Json]:
    """The workload and what it seeds `ctx` with.

    Defaults are rendered once, in document order; each sees the payload, the defaults above it, and who
    the execution is. Payload values are data and never rendered. A mapping `ctx` in the payload counts as
    if its keys stood at top level.
    """
    seeds = payload.get("ctx")
    seeds = dict(seeds) if isinstance(seeds, dict) else {}
    given = {**{name: value for name, value in payload.items() if name != "ctx" or not seeds}, **seeds}
    workload: Json = {}
    for name, default in playbook.workload.items():
        if name in given:
            workload[name] = given[name]
            continue
        names = {**given, **workload, "input": payload, "payload": payload, "env": env, **identity}
        workload[name] = templates.render_or_keep(default, names, strict=True, host=host).value
    return {**workload, **given}, seeds
