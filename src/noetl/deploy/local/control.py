"""What a person does with a stack: bring it up, see how it is, bring it down."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import msgspec

from noetl.deploy.local import locks, nats, postgres
from noetl.deploy.local.parts import patience_of, probed_names
from noetl.deploy.local.place import Place, read_json, write_private
from noetl.deploy.local.ports import LOOPBACK, free_ports, is_free
from noetl.deploy.local.record import Plan, Report, Stack, load_stack, make_stack, save_stack, taken, with_ports
from noetl.deploy.local.stopping import COMMAND, SUPERVISOR, living, stop
from noetl.errors import InvalidInput, NotFound, Unavailable
from noetl.settings import Settings

__all__ = [
    "Asked",
    "Standing",
    "ask_for",
    "bring_down",
    "bring_up",
    "one_at_a_time",
    "purge",
    "standing",
    "write_notes",
]

_BETWEEN_LOOKS = 0.1
_UP_SECONDS = 600.0
_WELL_SECONDS = 120.0
_OWN = (
    "run", "nats", "postgres", "logs", "wallet", "payloads", "results", "archive", "cache", "scratch", "spark", "local",
    "incoming", "running", "stack.json", "stack.env", "stack.token", "server.json", "server.lock",
)  # fmt: skip

Show = Callable[[Report], None]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for; None leaves it as it was."""

    workers: int | None = None
    projectors: int | None = None
    spark: bool | None = None
    storage_only: bool = False
    port: int | None = None

    def plan(self, former: Plan) -> Plan:
        """The plan that is wanted."""
        given = {"workers": self.workers, "projectors": self.projectors, "spark": self.spark}
        chosen = {name: value for name, value in given.items() if value is not None}
        return msgspec.structs.replace(former, storage_only=self.storage_only, **chosen)


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A stack, and how its processes are."""

    stack: Stack
    report: Report
    supervisor: int | None
    """Its process, or None: then nobody restarts what dies."""
    pids: dict[str, int | None]
    """Who lives, whatever the report says."""

    @property
    def is_well(self) -> bool:
        """Whether all of it runs as it should. Who has just died may not have been missed yet."""
        return (
            self.supervisor is not None
            and self.report.phase == "up"
            and all(part.state == "well" and self.pids.get(part.name) == part.pid for part in self.report.parts)
        )


@contextlib.contextmanager
def one_at_a_time(place: Place) -> Iterator[None]:
    """Two people may not bring one stack up and down at once."""
    if not place.run.is_dir():
        place.create()
    handle = locks.take(place.lock_of(COMMAND))
    if handle is None:
        raise Unavailable(f"another noetl up or down is at work in {place.home}", hint="wait for it")
    try:
        yield
    finally:
        os.close(handle)


def standing(place: Place) -> Standing | None:
    """How the stack of a home stands, or None if there is none."""
    stack = load_stack(place)
    if stack is None:
        return None
    supervisor = locks.holder(place.lock_of(SUPERVISOR))
    report = read_json(place.state, Report) or Report(phase="down")
    pids = living(place)
    if supervisor is None:
        report = Report(phase="failed" if report.phase == "failed" else "down", message=report.message)
    return Standing(stack=stack, report=report, supervisor=supervisor, pids=pids)


def ask_for(place: Place, asked: Asked, directory: Path) -> Stack:
    """Write down what is wanted; a new stack if there was none. Nothing is started.

    Raises Unavailable if something is not installed or a port is taken, InvalidInput for what cannot be changed now.
    """
    postgres.find_programs()
    nats.find_nats()
    if find_spec("nats") is None:
        raise Unavailable("the client of NATS is not installed", hint=postgres.INSTALL)
    place.create()
    stack = load_stack(place)
    if stack is None:
        stack = make_stack(place, asked.plan(Plan()), port=asked.port, directory=directory)
    elif locks.is_held(place.lock_of(SUPERVISOR)):
        if asked.port not in (None, stack.ports["server"]):
            raise InvalidInput(
                f"the stack runs, and its server listens on port {stack.ports['server']}", hint="noetl down, then up"
            )
        stack = msgspec.structs.replace(stack, plan=asked.plan(stack.plan))
    else:
        stack = _at_free_ports(place, stack, asked.port)
        stack = msgspec.structs.replace(stack, plan=asked.plan(stack.plan), directory=str(directory))
    stack = with_ports(stack, probed_names(stack.plan))
    save_stack(place, stack)
    return stack


def bring_up(place: Place, stack: Stack, show: Show = lambda report: None) -> Report:
    """Start what is not running, and wait until all of it is well. Raises Unavailable with the reason if it is not."""
    supervisor = locks.holder(place.lock_of(SUPERVISOR))
    if supervisor is None:
        place.state.unlink(missing_ok=True)
        _start_supervisor(place)
    elif (report := read_json(place.state, Report)) is not None and report.plan != stack.plan:
        os.kill(supervisor, signal.SIGHUP)
    end, patience = time.monotonic() + _UP_SECONDS, _WELL_SECONDS
    while time.monotonic() < end:
        time.sleep(_BETWEEN_LOOKS)
        lives = locks.is_held(place.lock_of(SUPERVISOR))
        report = read_json(place.state, Report)
        if report is not None:
            show(report)
            started = report.plan == stack.plan
            if report.phase == "failed" or (started and report.message is not None):
                raise Unavailable(report.message or "the stack did not start", hint=report.hint)
            ill = next((part for part in report.parts if part.state != "well"), None)
            if report.phase == "up" and started and ill is None:
                return report
            if report.phase == "up" and started and ill is not None and (patience := patience - _BETWEEN_LOOKS) < 0:
                log = place.log_of(ill.name)
                raise Unavailable(f"{ill.name} is not well: {ill.detail or ill.state}", hint=f"see {log}")
        if not lives:
            break
    raise Unavailable("the supervisor has ended, or takes too long", hint=f"see {place.log_of(SUPERVISOR)}")


def bring_down(
    place: Place, settings: Settings, *, now: bool, show: Show = lambda report: None
) -> tuple[list[str], list[str]]:
    """Stop everything, in order: the names of those that ran, and of those that had to be killed."""
    found = list(living(place))
    supervisor = locks.holder(place.lock_of(SUPERVISOR))
    if supervisor is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(supervisor, signal.SIGCONT)
            os.kill(supervisor, signal.SIGKILL if now else signal.SIGTERM)
        patience = 2 * patience_of("server", settings) + patience_of("outbox", settings) + patience_of("nats", settings)
        end = time.monotonic() + patience
        while locks.is_held(place.lock_of(SUPERVISOR)) and time.monotonic() < end:
            time.sleep(_BETWEEN_LOOKS)
            if (report := read_json(place.state, Report)) is not None:
                show(report)
        with contextlib.suppress(ProcessLookupError):
            if locks.is_held(place.lock_of(SUPERVISOR)):
                os.kill(supervisor, signal.SIGKILL)
    killed = stop(place, settings, now=now)
    return found, killed


def purge(place: Place, stack: Stack) -> None:
    """Delete everything that the stack has; it must not run. Other files of the directory stay. Raises Unavailable."""
    try:
        for path in [Path(stack.database_root), *(place.home / name for name in _OWN)]:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        if not any(place.home.iterdir()):
            place.home.rmdir()
    except OSError as error:
        raise Unavailable(
            f"cannot delete {error.filename}: {error.strerror}", hint="noetl down --purge again"
        ) from None


def write_notes(place: Place) -> Stack:
    """Write what shells and contexts read of a stack that is up."""
    stack = load_stack(place)
    if stack is None:
        raise NotFound(f"there is no stack in {place.home}", hint="noetl up makes one")
    programs = postgres.find_programs().copied_to(Path(stack.database_root))
    values = {"NOETL_HOME": stack.home, "NOETL_DATABASE": stack.postgres, "NOETL_NATS__URL": stack.nats}
    lines = ["# What this stack is reached by; `source` it. Whoever can read this can do everything.\n"]
    lines += [f"export {name}={shlex.quote(value)}\n" for name, value in values.items()]
    lines += [f'export PATH={shlex.quote(str(programs.directory))}:"$PATH"  # psql, pg_dump, pg_restore\n']
    write_private(place.environment, "".join(lines))
    if stack.token is not None:
        write_private(place.token, f"{stack.token}\n")
    return stack


def _at_free_ports(place: Place, stack: Stack, wanted: int | None) -> Stack:
    """The same stack at ports that it can have: the server's is chosen by people, the others are nobody's business."""
    held = living(place)
    ports = dict(stack.ports)
    if wanted is not None:
        ports["server"] = wanted
    if "server" not in held and not is_free(ports["server"]):
        raise taken(ports["server"])
    for name, port in ports.items():
        if name.removesuffix("-monitor") not in held and name != "server" and not is_free(port):
            ports[name] = free_ports(1, but=ports.values())[0]
    return msgspec.structs.replace(
        stack,
        ports=ports,
        url=f"http://{LOOPBACK}:{ports['server']}",
        postgres=stack.postgres.replace(f" port={stack.ports['postgres']} ", f" port={ports['postgres']} "),
        nats=stack.nats.replace(f":{stack.ports['nats']}", f":{ports['nats']}"),
    )


def _start_supervisor(place: Place) -> None:
    with place.log_of(SUPERVISOR).open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "noetl", "up", "--background", "--home", str(place.home)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # the terminal's signals are not for it
        )
    lock, end = place.lock_of(SUPERVISOR), time.monotonic() + _UP_SECONDS
    while not locks.is_held(lock) and time.monotonic() < end:
        if process.poll() is not None:
            break
        time.sleep(_BETWEEN_LOOKS / 2)
    process.returncode = 0  # left running on purpose
