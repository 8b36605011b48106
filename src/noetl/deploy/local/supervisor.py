"""The supervisor of a stack: starts its processes in order, restarts what dies, and stops them in order."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from noetl.deploy.local import locks, postgres
from noetl.deploy.local.health import ill, last_lines
from noetl.deploy.local.parts import Part, noetl_parts, storage_parts
from noetl.deploy.local.place import Place, read_json, write_private
from noetl.deploy.local.preparing import prepare
from noetl.deploy.local.record import Phase, Plan, Report, Stack, State, load_stack, save_stack
from noetl.deploy.local.stopping import SUPERVISOR, stop
from noetl.errors import InvalidInput, NoetlError, Unavailable
from noetl.settings import Settings

__all__ = ["Supervisor", "supervising"]

_TICK = 0.1
_LOOK_EVERY = 2.0
_LOOK_AT_FIRST = 0.2
_START_SECONDS = 120.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 30.0
_SETTLED = 60.0
"""Who has lived so long is restarted as if it had never died before."""
_MOST_DEATHS = 3
"""During the first start; after it there is no end to patience."""
_USAGE = 2
_MOST_LOG = 10 << 20

Tell = Callable[[str, str], None]


@contextlib.contextmanager
def supervising(place: Place) -> Iterator[None]:
    """Be the supervisor of a stack until the end of the block. Raises InvalidInput when there is one."""
    handle = locks.take(place.lock_of(SUPERVISOR))
    if handle is None:
        raise InvalidInput(f"the stack in {place.home} has a supervisor already", hint="noetl up --status shows it")
    try:
        locks.write_pid(handle)
        yield
    finally:
        os.close(handle)


class _Watched:
    """One process and what has become of it."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.process: subprocess.Popen[bytes] | None = None
        self.state: Literal["waiting", "starting", "well", "unwell", "restarting", "stopped"] = "waiting"
        self.restarts = 0
        self.deaths_in_a_row = 0
        self.detail: str | None = None
        self.started = 0.0
        self.due = 0.0
        self.looked = 0.0


class Supervisor:
    """Runs a stack until it is told to stop. One thread: it looks around ten times a second."""

    def __init__(self, place: Place, settings: Settings, tell: Tell = lambda name, what: None) -> None:
        self._place = place
        self._settings = settings
        self._tell = tell
        self._watched: dict[str, _Watched] = {}
        self._stopping = False
        self._again = False
        self._written: bytes = b""
        self._phase: Phase = "starting"
        self._error: NoetlError | None = None
        self._seconds: float | None = None
        self._plan: Plan | None = None

    def stop(self) -> None:
        """Stop everything, and return from `run`. May be called from a signal handler."""
        self._stopping = True

    def reload(self) -> None:
        """Look at the plan again. May be called from a signal handler."""
        self._again = True

    def run(self, on_up: Callable[[], None] = lambda: None) -> None:
        """Start everything, then watch over it until told to stop. Raises what kept it from starting."""
        began, failed = time.monotonic(), True
        try:
            self._start_all(self._stack())
            self._seconds = round(time.monotonic() - began, 2)
            if not self._stopping:
                self._set_phase("up")
                on_up()
            while not self._stopping:
                if self._again:
                    self._again = False
                    self._change()
                self._tick()
                time.sleep(_TICK)
            failed = False
        except NoetlError as error:
            self._error = error
            raise
        finally:
            self._set_phase("stopping")
            stop(self._place, self._settings, tell=self._told)
            self._set_phase("failed" if failed else "down")

    # --- The first start, and changes of the plan ------------------------------------------------------------

    def _start_all(self, stack: Stack) -> None:
        for part in storage_parts(self._place, stack):
            self._watched[part.name] = _Watched(part)
        self._await(list(self._watched))
        if self._stopping:
            return
        self._add(noetl_parts(self._prepared(stack), self._settings))
        self._plan = stack.plan

    def _change(self) -> None:
        """Go over to another plan: who is not in it any more, or would be started in another way, is stopped first."""
        stack = self._stack()
        parts = {part.name: part for part in noetl_parts(self._prepared(stack), self._settings)}
        ours = {name for name in self._watched if name not in ("postgres", "nats")}
        leaving = {name for name in ours if name not in parts or parts[name].digest != self._watched[name].part.digest}
        self._error = None
        self._set_phase("starting")
        for name in leaving:
            del self._watched[name]
        stop(self._place, self._settings, only=leaving, tell=self._told)
        try:
            self._add([part for name, part in parts.items() if name not in self._watched])
        except NoetlError as error:  # what runs goes on
            self._tell("stack", f"could not change: {error}")
            self._error = error
        self._plan = stack.plan
        self._set_phase("up")

    def _prepared(self, stack: Stack) -> Stack:
        """With tables and tokens, unless nobody is there to use them."""
        if not stack.plan.storage_only:
            stack = prepare(stack, self._settings)
            save_stack(self._place, stack)
        return stack

    def _add(self, parts: Sequence[Part]) -> None:
        for part in parts:
            self._watched[part.name] = _Watched(part)
        self._await([part.name for part in parts if not part.after_server])
        self._await([part.name for part in parts if part.after_server])

    def _await(self, names: Sequence[str]) -> None:
        """Start these, and wait until all of them are well. Raises Unavailable if one of them is not."""
        for name in names:
            self._begin(self._watched[name])
        end = time.monotonic() + _START_SECONDS
        while not self._stopping:
            self._tick()
            waiting = [self._watched[name] for name in names if self._watched[name].state != "well"]
            if not waiting:
                return
            for one in waiting:
                if one.deaths_in_a_row >= _MOST_DEATHS or time.monotonic() > end:
                    raise self._failed(one)
            time.sleep(_TICK / 2)

    def _failed(self, one: _Watched) -> NoetlError:
        name = one.part.name
        log = self._place.log_of(name)
        lines = last_lines(log)
        said = next((line.partition("error: ")[2] for line in reversed(lines) if line.startswith("error: ")), None)
        fix = next((line.partition("fix: ")[2] for line in reversed(lines) if line.lstrip().startswith("fix: ")), None)
        why = said or one.detail or "it does not answer"
        shown = "".join(f"\n    {line}" for line in lines)
        return Unavailable(f"{name} did not start: {why}{shown}", hint=fix or f"see {log}")

    # --- One look around -------------------------------------------------------------------------------------

    def _tick(self) -> None:
        now = time.monotonic()
        for one in self._watched.values():
            if one.state == "waiting":
                continue
            if one.state == "restarting":
                if now >= one.due:
                    self._begin_again(one)
            elif not self._lives(one):
                self._mourn(one, now)
            elif now - one.looked >= (_LOOK_EVERY if one.state == "well" else _LOOK_AT_FIRST):
                self._look(one)
        self._report()

    def _look(self, one: _Watched) -> None:
        detail = ill(one.part.health)
        if detail is None and one.part.announces is not None and _announced(one.part.announces) != self._pid(one):
            detail = "somebody else answers at its address"
        one.looked = time.monotonic()
        if detail is None:
            if one.state != "well":
                self._tell(one.part.name, "well")
            one.state, one.detail = "well", None
        else:
            one.detail = detail
            if one.state == "well":
                self._tell(one.part.name, f"unwell: {detail}")
                one.state = "unwell"

    def _lives(self, one: _Watched) -> bool:
        if one.process is not None:
            return one.process.poll() is None
        return locks.is_held(self._place.lock_of(one.part.name))

    def _mourn(self, one: _Watched, now: float) -> None:
        code = one.process.returncode if one.process is not None else None
        if now - one.started > _SETTLED:
            one.deaths_in_a_row = 0
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**one.deaths_in_a_row)
        one.deaths_in_a_row += _MOST_DEATHS if code == _USAGE and one.state == "starting" else 1
        one.restarts += 1
        one.state, one.due = "restarting", now + pause
        one.detail = f"it ended with {_ending(code)}"
        self._tell(one.part.name, f"{one.detail}; starting it again in {pause:g} s")

    def _begin_again(self, one: _Watched) -> None:
        """As often as it takes: a disk that is full today has room tomorrow."""
        try:
            self._begin(one)
        except NoetlError as error:
            if one.detail != error.message:
                self._tell(one.part.name, error.message)
            one.detail, one.due = error.message, time.monotonic() + _LONGEST_PAUSE

    def _begin(self, one: _Watched) -> None:
        """Start a process; or take over one that runs already, in just this way."""
        name, path = one.part.name, self._place.lock_of(one.part.name)
        note = path.with_suffix(".digest")
        handle = locks.take(path)
        if handle is None:
            if one.state == "waiting" and note.exists() and note.read_text() == one.part.digest:
                one.process, one.state, one.started = None, "starting", time.monotonic()
                self._tell(name, f"runs already (process {locks.holder(path)})")
                return
            if one.state == "waiting":
                stop(self._place, self._settings, only=[name], tell=self._told)
                handle = locks.take(path)
        if handle is None:  # what is left of it has not ended
            one.state, one.due = "restarting", time.monotonic() + _FIRST_PAUSE
            return
        try:
            write_private(note, one.part.digest)
            one.process = _started(one.part, handle, self._place.log_of(name))
        except OSError as error:
            raise Unavailable(f"{name} cannot be started: {error}", hint=f"see {self._place.logs}") from None
        finally:
            os.close(handle)
        one.state, one.started, one.looked = "starting", time.monotonic(), 0.0
        self._tell(name, f"started (process {one.process.pid})")

    # --- What others see -------------------------------------------------------------------------------------

    def _stack(self) -> Stack:
        stack = load_stack(self._place)
        if stack is None:
            raise InvalidInput(f"there is no stack in {self._place.home}", hint="noetl up makes one")
        return stack

    def _set_phase(self, phase: Phase) -> None:
        self._phase = phase
        self._report()

    def _told(self, name: str, what: str) -> None:
        self._tell(name, what)
        if what == "stopped" and name in self._watched:
            one = self._watched[name]
            one.state, one.detail = "stopped", None
            if one.process is not None:
                one.process.wait()
        self._report()

    def _pid(self, one: _Watched) -> int | None:
        if one.state in ("waiting", "restarting", "stopped"):
            return None
        return one.process.pid if one.process is not None else locks.holder(self._place.lock_of(one.part.name))

    def _report(self) -> None:
        parts = [
            State(
                name=one.part.name,
                state=one.state,
                pid=self._pid(one),
                restarts=one.restarts,
                detail=one.detail,
            )
            for one in self._watched.values()
        ]
        error = self._error
        report = Report(
            phase=self._phase, parts=parts, seconds=self._seconds, plan=self._plan,
            message=error.message if error else None, hint=error.hint if error else None,
        )  # fmt: skip
        data = msgspec.json.encode(report)
        if data != self._written:
            self._written = data
            try:
                write_private(self._place.state, data)
            except Unavailable as error:  # nobody is stopped because it cannot be written down how they are
                self._tell("stack", error.message)
                self._written = b""


def _started(part: Part, handle: int, log: Path) -> subprocess.Popen[bytes]:
    if log.exists() and log.stat().st_size > _MOST_LOG:
        log.replace(log.with_name(f"{log.name}.1"))
    if part.name == "postgres":
        postgres.forget_the_dead(Path(part.command[2]))
    with log.open("ab") as output:
        return subprocess.Popen(
            part.command,
            cwd=part.directory,
            env=dict(part.environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # neither the terminal's signals nor ours reach it by themselves
            **locks.handed_down(handle),
            **(postgres.account() if part.as_nobody else {}),
        )


def _announced(file: str) -> int | None:
    """The process that says there that it listens."""
    found = read_json(Path(file), dict)
    return None if found is None else found.get("pid")


def _ending(code: int | None) -> str:
    if code is None:
        return "an unknown code"
    return f"code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
