"""Tooling: what tasks are given to work with, from the settings of this installation.

One place decides which kinds run here and under which limits, what templates see of the environment, how secrets
are reached, and whether an execution may begin at all.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from noetl.errors import InvalidInput, InvalidSetting
from noetl.kernel import canonical
from noetl.kernel.event import Json
from noetl.payloads.routes import CLOUD_SCHEMES
from noetl.playbook.document import Playbook
from noetl.runtime.resolver import resolver_of
from noetl.runtime.spark import means_of, needs_spark, spark_maker, transfer_maker, why_no_pyspark
from noetl.runtime.stores import read_pairs
from noetl.runtime.vault import Vault
from noetl.settings import PRIVATE_VARIABLES, Payloads, Settings, Tools, format_size
from noetl.tools.registry import KindUnavailable, Options, Registry

if TYPE_CHECKING:
    from noetl.payloads.resolver import Resolver
    from noetl.runtime.addresses import Addresses
    from noetl.runtime.driver import Origin
    from noetl.runtime.wiring import Embedded
    from noetl.tools.base import Tool
    from noetl.tools.http.tokens import TokenClient

__all__ = [
    "FEATURES",
    "Tooling",
    "addresses_of",
    "env_of",
    "python_options",
    "registry_of",
    "registry_with",
    "token_client",
    "tooling_of",
]

FEATURES = frozenset({"credentials", "keychain", "loops", "pipelines", "playbooks", "references", "replay", "resume"})
"""What `executor.requires.features` may name without a warning."""

_log = logging.getLogger("noetl.tooling")


class Tooling:
    """The registry of tools, the vault, and the door that executions enter by."""

    def __init__(
        self,
        registry: Registry,
        vault: Vault,
        env: Mapping[str, str],
        directory: Path,
        payloads: Payloads | None = None,
    ) -> None:
        self.registry = registry
        self._payloads = payloads or Payloads()
        self.vault = vault
        self.env = env
        self.has_spark_elsewhere: Callable[[], Awaitable[bool]] | None = None
        """Where workers of other processes run commands: whether they run those for Spark, too."""
        self._directory = directory

    async def admit(self, playbook: Playbook, payload: Json) -> None:
        """Refuse what could not run here, before anything is written; make ready for what can.

        Raises KindUnavailable and InvalidInput.
        """
        is_elsewhere = self.has_spark_elsewhere is not None and await self.has_spark_elsewhere()
        self._check_tools(playbook, {"spark", "transfer"} if is_elsewhere else set())
        if not is_elsewhere:
            self._check_stages(playbook)
        self._check_stores(playbook)
        _check_payload(playbook, payload)
        for feature in playbook.executor.requires_features:
            if feature not in FEATURES:
                _log.warning("%s requires the feature '%s', which is not known here", playbook.path, feature)
        if self.has_spark_elsewhere is None:
            await self._prepare(playbook)

    async def close(self) -> None:
        """Let go of processes, pools and connections."""
        await self.registry.close()
        await self.vault.close()

    def _check_tools(self, playbook: Playbook, elsewhere: Collection[str]) -> None:
        wanted = [kind for kind in playbook.executor.requires_tools if kind not in elsewhere]
        missing = {kind: why for kind in wanted if (why := self.registry.why_not(kind)) is not None}
        if missing:
            listed = "; ".join(f"{kind} ({why})" for kind, why in missing.items())
            raise KindUnavailable(
                f"{playbook.path} requires tools that cannot run here: {listed}",
                hint="run it where they can, or take them out of executor.requires.tools",
            )

    def _check_stages(self, playbook: Playbook) -> None:
        for step in playbook.steps.values():
            if step.stage_kind is not None and step.loop is not None and step.loop.engine == "spark":
                self._check_spark(playbook, step.name)

    def _check_spark(self, playbook: Playbook, step: str) -> None:
        from noetl.runtime.stages.placement import why_no_spark

        if (reason := why_no_spark()) is not None:
            raise KindUnavailable(
                f"step '{step}' of {playbook.path} asks for Spark, which cannot run here: {reason}",
                hint="or say engine: worker",
            )

    def _check_stores(self, playbook: Playbook) -> None:
        """A result can be kept in a cloud store if a route leads there, or all of this installation's payloads are."""
        routes = read_pairs("payloads.routes", self._payloads.routes)
        for step in playbook.steps.values():
            for output in (step.output, *(task.output for task in step.tasks)):
                kind = output.store or ""
                scheme = CLOUD_SCHEMES.get(kind)
                if scheme is not None and kind not in routes and not (self._payloads.url or "").startswith(scheme):
                    raise KindUnavailable(
                        f"step '{step.name}' keeps its result in '{kind}', and this installation has no route there",
                        hint=f'set payloads.routes = ["{kind}={scheme}bucket/prefix"], or leave output.store out',
                    )

    async def _prepare(self, playbook: Playbook) -> None:
        """Processes for Python and Spark take a while to start: they can do so while the start is being recorded."""
        if (
            needs_spark(playbook)
            and (prepare_spark := getattr(self.registry.find("spark"), "prepare", None)) is not None
        ):
            prepare_spark(playbook.executor.spark)
        tasks = [task for step in playbook.steps.values() for task in step.tasks]
        tasks += [entry.task for entry in playbook.workbook.values()]
        python = self.registry.find("python") if any(task.kind == "python" for task in tasks) else None
        prepare = getattr(python, "prepare", None)
        if prepare is not None:
            await prepare(self._directory)


def tooling_of(
    embedded: Embedded,
    origin: Origin,
    *,
    directory: Path,
    scratch: Path,
    registry: Registry | None = None,
    environ: Mapping[str, str] | None = None,
) -> Tooling:
    """Everything that the tasks of an embedded installation work with."""
    variables = os.environ if environ is None else environ
    settings = embedded.settings
    vault = Vault(
        embedded.credentials,
        embedded.clock,
        origin.tenant_id,
        variables,
        lambda: token_client(settings),
    )
    registry = registry or registry_of(embedded, origin, scratch)
    return Tooling(registry, vault, env_of(settings, variables), directory, settings.payloads)


def registry_of(embedded: Embedded, origin: Origin, scratch: Path) -> Registry:
    """The tools of this installation; each is made when a task first asks for it."""
    resolver = resolver_of(embedded.settings, lambda: addresses_of(embedded, origin))

    def http() -> Tool:
        found = registry.find("http")
        assert found is not None, "http is built in"
        return found

    means = means_of(embedded, origin, scratch, http)
    makers = {"spark": spark_maker(embedded, scratch, means), "transfer": transfer_maker(means)}
    registry = registry_with(embedded.settings, scratch, resolver, makers=makers)
    return registry


def registry_with(
    settings: Settings,
    scratch: Path,
    resolver: Resolver,
    tools_made: Mapping[str, Tool] | None = None,
    makers: Mapping[str, Callable[[], Tool]] | None = None,
) -> Registry:
    """The tools that settings describe; of some kinds there may be others that were made already.

    Without somebody who makes the spark kind, as inside Spark's own workers, it is not to be had.
    """
    tools = settings.tools
    disabled = {} if tools.shell else {"shell": "it is switched off by the setting tools.shell"}
    if (missing := why_no_pyspark()) is not None:
        disabled["spark"] = missing
    options: dict[str, Options] = {
        "http": lambda: _http_options(tools),
        "python": python_options(settings, scratch),
        "duckdb": {"extensions": Path(tools.duckdb_extensions) if tools.duckdb_extensions else None},
    }
    return Registry(tools_made, options, disabled, _at_once(settings), resolver, makers)


def python_options(settings: Settings, scratch: Path) -> Json:
    """What a tool for Python is made with."""
    tools = settings.tools
    return {
        "workers": tools.python_processes,
        "memory_limit": tools.python_memory,
        "time_limit": tools.python_time,
        "table_memory": settings.payloads.shared_memory,
        "cache": Path(tools.python_cache) if tools.python_cache else scratch / "python",
    }


def _at_once(settings: Settings) -> dict[str, int]:
    """The limits of kinds. Raises InvalidSetting for one that is no number above zero."""
    limits: dict[str, int] = {}
    for said in settings.tools.at_once:
        kind, _, number = said.partition("=")
        if not number.strip().isdecimal() or int(number) == 0:
            raise InvalidSetting(
                f"{settings.source('tools.at_once')}: tools.at_once: '{said}' is not a limit",
                hint='write a kind and a number, such as at_once = ["http=4", "postgres=2"]',
            )
        limits[kind.strip()] = int(number)
    return limits


def _http_options(tools: Tools) -> Json:
    from noetl.tools.http import Limits

    limits = Limits(in_memory=tools.http_in_memory, in_file=tools.http_in_file)
    return {"limits": limits, "allow_link_local": tools.http_link_local}


def token_client(settings: Settings) -> TokenClient:
    """What asks token endpoints."""
    from noetl.tools.http.tokens import TokenClient

    return TokenClient(allow_link_local=settings.tools.http_link_local)


def env_of(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that templates may read. Raises InvalidSetting for one that is a key of ours, or has one in it."""
    for name in settings.env.allow:
        if name in PRIVATE_VARIABLES:
            raise InvalidSetting(
                f"{settings.source('env.allow')}: env.allow: {name} is a key, which no template may read",
                hint="take it out of the list",
            )
    return {name: environ[name] for name in settings.env.allow if name in environ}


def addresses_of(embedded: Embedded, origin: Origin) -> Addresses:
    """What is kept under `noetl://` addresses, for tasks of a tenant."""
    from noetl.runtime.addresses import Addresses
    from noetl.runtime.loading import Documents, Loader
    from noetl.tools.registry import UserKinds

    keeper = embedded.keeper(origin.project_id)
    loader = Loader(embedded.ledger, keeper, Documents(UserKinds()), origin.tenant_id)
    return Addresses(keeper, loader, origin.tenant_id, origin.project_id)


def _check_payload(playbook: Playbook, payload: Json) -> None:
    limit = playbook.executor.max_payload_bytes
    if limit is None:
        return
    size = len(canonical.encode(payload))
    if size > limit:
        raise InvalidInput(
            f"the payload has {size} bytes, {playbook.path} accepts at most {format_size(limit)}",
            hint="send less, such as a reference; the limit is executor.spec.policy.limits.max_payload_bytes",
        )
