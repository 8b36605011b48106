"""`noetl.connect`: the executions of a server, with the same methods as those here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from noetl.api.client import address_of
from noetl.api.portal import AsyncMailbox, Mailbox, Portal
from noetl.api.run import Run, as_execution_id, concluded
from noetl.api.server import Server
from noetl.api.session import job_of
from noetl.api.sources import Reference, Runnable, source_of
from noetl.errors import InvalidInput

if TYPE_CHECKING:
    from noetl.kernel.event import Envelope

__all__ = ["Remote", "connect"]

OnEvent = Callable[["Envelope"], None]
_SECONDS = 30.0


def connect(url: str, token: str | None = None, *, timeout: float = _SECONDS) -> Remote:
    """A server by its address. Raises Unavailable if it does not answer, InvalidInput if it is of another release.

    `timeout` is how long one request may take; an execution may take as long as it likes.
    """
    server = Server(address_of(url), token, timeout)
    server.ask(server.check())
    return Remote(server)


class Remote:
    """A server. It may be used from several threads at once."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def run(
        self,
        playbook: Runnable,
        *,
        wait: bool = True,
        key: str | None = None,
        parent_execution_id: int | str | None = None,
        on_event: OnEvent | None = None,
        timeout: float | None = None,
        check: bool = False,
        workload: Mapping[str, Any] | None = None,
        **values: Any,
    ) -> Run:
        """Run a playbook on the server; see `noetl.run`. Without `wait` the run is given once it is accepted.

        A file, text or built playbook is registered first, unless the catalog has it just like this. If this call is
        interrupted the execution goes on.
        """
        job = job_of(playbook, {**(workload or {}), **values}, key, parent_execution_id, timeout)
        if not wait:
            _check_unwatched(on_event, timeout, check)
            return Run(self._server, self._server.ask(self._server.start(job)))
        mailbox = Mailbox(on_event or _ignore)
        with Portal() as portal:
            outcome = portal.call(self._server.run(job, mailbox.put), mailbox)
        return concluded(Run(self._server, outcome.summary), check, timeout if outcome.timed_out else None)

    async def arun(
        self,
        playbook: Runnable,
        *,
        wait: bool = True,
        key: str | None = None,
        parent_execution_id: int | str | None = None,
        on_event: OnEvent | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it limits the execution, whoever awaits it
        check: bool = False,
        workload: Mapping[str, Any] | None = None,
        **values: Any,
    ) -> Run:
        """The same for a caller that awaits."""
        job = job_of(playbook, {**(workload or {}), **values}, key, parent_execution_id, timeout)
        mailbox = AsyncMailbox(on_event or _ignore)
        with Portal() as portal:
            if not wait:
                _check_unwatched(on_event, timeout, check)
                return Run(self._server, await portal.acall(self._server.start(job), mailbox))
            outcome = await portal.acall(self._server.run(job, mailbox.put), mailbox)
        return concluded(Run(self._server, outcome.summary), check, timeout if outcome.timed_out else None)

    def register(self, playbook: Runnable) -> list[dict[str, Any]]:
        """Put a file, text or playbook into the catalog; says path and version of each document."""
        source = source_of(playbook)
        if isinstance(source, Reference):
            raise InvalidInput(f"'{source}' is a catalog path", hint="register a file, YAML text or a Playbook")
        return self._server.ask(self._server.register(source))

    def executions(self, *, status: str | None = None, path: str | None = None, limit: int = 50) -> Sequence[Run]:
        """Executions of this server, newest first."""
        found = self._server.ask(self._server.executions(status, path, limit))
        return [Run(self._server, summary) for summary in found]

    def get(self, execution_id: int | str) -> Run:
        """An execution by its id. Raises NotFound."""
        return Run(self._server, self._server.ask(self._server.summary(as_execution_id(execution_id))))

    def __repr__(self) -> str:
        return f"Remote({self._server.url!r})"


def _check_unwatched(on_event: OnEvent | None, timeout: float | None, check: bool) -> None:
    if on_event is not None or timeout is not None or check:
        raise InvalidInput(
            "wait=False leaves nobody to call on_event, watch the timeout or check the end",
            hint="use run.wait(timeout) and run.raise_for_status() later",
        )


def _ignore(event: Envelope) -> None:
    """Nobody wants to hear of it."""
