"""Options that many commands share, and the way from them to an open home."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from noetl.errors import InvalidEvent, InvalidInput, NotFound
from noetl.settings import Settings, load, resolve_home

if TYPE_CHECKING:
    from noetl.kernel.tail import Stream
    from noetl.runtime.home import Home
    from noetl.runtime.wiring import Embedded

__all__ = ["common", "execution_id_of", "find_root", "home_of", "run_async", "settings_of"]

F = TypeVar("F", bound=Callable[..., Any])

_PAGE = 2000


def common(function: F) -> F:
    """`--home`, `--tenant` and `--json`, which every command understands."""
    function = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(function)
    function = click.option("--tenant", "tenant", metavar="ID", help="Tenant to look in  [tenant.id]")(function)
    return click.option(
        "--home", type=click.Path(path_type=Path), metavar="DIR", help="Where everything is kept  [NOETL_HOME]"
    )(function)


def settings_of(tenant: str | None = None) -> Settings:
    """The settings that hold for this call."""
    return load(environ=os.environ, cwd=Path.cwd(), flags={"tenant.id": tenant})


def home_of(home: Path | None) -> Home:
    """The home that holds for this call."""
    from noetl.runtime.home import Home

    return Home(resolve_home(home, os.environ, Path.cwd()), elsewhere=settings_of().ledger.url is not None)


def run_async(coroutine: Coroutine[Any, Any, int | None]) -> int | None:
    """Run a command's coroutine to its exit code; an interrupt cancels it, a second one ends it at once."""
    interrupts: list[int] = []
    code = asyncio.run(_interruptible(coroutine, interrupts))
    if interrupts and code is None:
        raise KeyboardInterrupt
    return code


async def _interruptible(coroutine: Coroutine[Any, Any, int | None], interrupts: list[int]) -> int | None:
    # The loop's own handler cancels wherever it finds the program, also while it hands over what a thread answered,
    # which then complains aloud of a state that it cannot have. This one cancels between two callbacks.
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()

    def interrupted(number: int, _: object) -> None:
        if interrupts:
            raise KeyboardInterrupt
        interrupts.append(number)
        if task is not None:
            loop.call_soon_threadsafe(task.cancel)

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        return await coroutine
    except asyncio.CancelledError:
        if not interrupts:
            raise
        return None
    finally:
        if signal.getsignal(signal.SIGINT) is interrupted:
            signal.signal(signal.SIGINT, before)


def execution_id_of(name: str) -> int:
    """An execution id as a person writes it."""
    if not name.isdecimal() or int(name) >= 1 << 63:
        raise InvalidInput(f"'{name}' is not an execution id", hint="ids are decimal numbers; see noetl list")
    return int(name)


async def find_root(embedded: Embedded, name: str, settings: Settings) -> Stream:
    """The root that a person means by an execution id or a stream name, in whichever tenant it is."""
    from noetl.kernel.streams import category_of, root_of
    from noetl.kernel.tail import Stream

    stream_id = f"execution/{name}" if name.isdecimal() else name
    if "/" not in stream_id:
        raise InvalidInput(f"'{name}' is not an execution id", hint="ids are decimal numbers; see noetl list")
    try:
        category_of(stream_id)
    except InvalidEvent as error:
        known = "ids are decimal numbers; see noetl list" if name.isdecimal() else error.hint
        raise InvalidInput(f"'{name}' is not an execution id or a stream", hint=known) from None
    root = Stream(settings.tenant.id, root_of(stream_id))
    if await embedded.ledger.head(root) is not None or (await embedded.projections.load(root)):
        return root
    others = await _elsewhere(embedded, root)
    if len(others) == 1:
        return others[0]
    if others:
        tenants = ", ".join(sorted(other.tenant_id for other in others))
        raise InvalidInput(f"several tenants have {stream_id}: {tenants}", hint="choose one with --tenant")
    raise NotFound(f"there is no {'execution' if name.isdecimal() else 'stream'} {name}", hint=_where_to_look())


def _where_to_look() -> str:
    """Whoever has a server as the context sees what that has, and may wonder why it is not here."""
    from noetl.cli.contexts import Contexts, contexts_file

    current = Contexts.load(contexts_file(os.environ)).current
    if current is None:
        return "noetl list shows what there is"
    return (
        f"this looks into a log itself, not into what context '{current}' has: name its ledger by --home or "
        "NOETL_DATABASE (noetl up writes a stack.env to source); noetl list --context local shows what is here"
    )


async def _elsewhere(embedded: Embedded, root: Stream) -> list[Stream]:
    """The same root in other tenants. Rows may be behind or damaged, so where they know nothing the heads are asked."""
    from noetl.kernel.streams import execution_of, root_of
    from noetl.kernel.tail import Stream

    execution_id = execution_of(root.stream_id)
    if execution_id is not None:
        page = await embedded.projections.query("execution", where={"execution_id": execution_id}, limit=10)
        if found := [row.root for row in page.rows if row.root.stream_id == root.stream_id]:
            return found
    tenants: set[str] = set()
    after: Stream | None = None
    while heads := await embedded.ledger.heads(after=after, limit=_PAGE):
        tenants |= {head.tenant_id for head in heads if root_of(head.stream_id) == root.stream_id}
        after = Stream(heads[-1].tenant_id, heads[-1].stream_id)
    return [Stream(tenant, root.stream_id) for tenant in sorted(tenants)]
