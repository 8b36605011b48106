"""Where a result belongs in a run, and every address that follows from that alone.

A result's name, its object key and its effect key are computed from the coordinates of the work, so a
replay, a second delivery and a repair find the same object without asking anyone.

How coordinates are spelled in a result name:

* `<step>` is `<step>~<run>` and is read from its last `~`.
* `<frame>` is `e<epoch>.s<slot>.f<index>`; `0` where the work is not part of a frame.
* `<row>` counts from 1; `0` where the work is not one row or iteration. Indexes count from 0, so row
  index 4 is spelled `5`: a loop's own result and that of its first iteration must not share a name.
* `<attempt>` is followed by `~<task>.<visit>` for the result of one task of the step's pipeline, and is
  read from its first `~` and its last `.`. The word `effect` takes the attempt's place in effect keys and
  the objects that guard them, because those are the same for every attempt.

Step and task names may be any text, control characters too; percent-encoding and the reading
directions above keep them apart from what surrounds them.
"""

from __future__ import annotations

import re
from datetime import date

import msgspec

from noetl.errors import InvalidName
from noetl.kernel.ids import unix_ms
from noetl.kernel.names.address import Address, check_length, check_tenant, join, reading, split
from noetl.kernel.names.segments import (
    bounded,
    check,
    check_label,
    check_number,
    decode,
    encode,
    read_number,
    read_segment,
    show,
)
from noetl.kernel.names.shards import shard_label, shard_of

__all__ = [
    "RESULTS",
    "FrameCoordinates",
    "Home",
    "ResultCoordinates",
    "day_of",
    "execution_prefix",
    "read_coordinates",
]

RESULTS = "results"
EFFECT_KEY_CHARS = 255  # what servers commonly accept as an Idempotency-Key
KEY_PART_CHARS = 160  # with its suffix a part stays below the 255 bytes of a file name

_FORM = "noetl://<tenant>/<project>/results/<execution>/<step>~<run>/<frame>/<row>/<attempt>[~<task>.<visit>]@<version>"
_SEGMENTS = 8
_FRAME = re.compile(r"e([0-9]+)\.s([0-9]+)\.f([0-9]+)")
_FRAME_ROLES = ("epoch", "slot", "frame index")
_UNIX_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_DAY_MS = 86_400_000


class FrameCoordinates(msgspec.Struct, frozen=True, kw_only=True):
    """One frame of a data stage: the epoch of its loop, the slot that ran it, its number within the slot."""

    epoch: int
    slot: int
    index: int

    def __post_init__(self) -> None:
        check_number("epoch", self.epoch)
        check_number("slot", self.slot)
        check_number("frame index", self.index)

    def __str__(self) -> str:
        return f"e{self.epoch}.s{self.slot}.f{self.index}"


class Home(msgspec.Struct, frozen=True, kw_only=True):
    """Where an execution lives, as its first event records it.

    `root` is the execution at the top of its family, whose id decides the shard; None for an execution
    that nothing called.
    """

    env: str
    region: str
    cell: str
    root: int | None = None

    def __post_init__(self) -> None:
        check("env", self.env)
        check("region", self.region)
        check("cell", self.cell)
        if self.root is not None:
            check_number("root execution", self.root)


_ANYWHERE = Home(env="0", region="0", cell="0")
_HOME = re.compile(r"noetl/env=[^/]+/region=[^/]+/cell=[^/]+/shard=s[0-9]{4}")


class EffectKeys(msgspec.Struct, frozen=True):
    """The effect keys of all that runs at one place, its rows and its tasks: what they share is spelled once."""

    head: str

    def key(self, row: int | None, task: str, visit: int) -> str:
        """What `effect_key` of the coordinates with this row, task and visit gives."""
        number = 0 if row is None else row + 1
        return bounded(f"{self.head}/{number}/effect~{encode(task)}.{visit}", EFFECT_KEY_CHARS)


class ResultCoordinates(msgspec.Struct, frozen=True, kw_only=True):
    """The place of one result: run of a step, frame, row (an index from 0), attempt and perhaps task and visit.

    The version is that of the name, not of the data: objects are immutable, and the object key does
    not hold it.
    """

    tenant: str
    project: str
    execution_id: int
    step: str
    run: int
    frame: FrameCoordinates | None = None
    row: int | None = None
    attempt: int
    task: str | None = None
    visit: int | None = None
    version: str = "v1"

    def __post_init__(self) -> None:
        check_tenant(self.tenant)
        check("project", self.project)
        check("version", self.version)
        check_number("execution", self.execution_id)
        check_number("run", self.run)
        check_number("attempt", self.attempt)
        if self.row is not None:
            check_number("row index", self.row)
            check_number("row", self.row + 1)
        check_label("step", self.step)
        self._check_task()

    def _check_task(self) -> None:
        if (self.task is None) != (self.visit is None):
            raise InvalidName("task and visit stand together or not at all")
        if self.task is not None and self.visit is not None:
            check_label("task", self.task)
            check_number("visit", self.visit)

    @classmethod
    def parse(cls, text: str) -> ResultCoordinates:
        """The coordinates inside a result name."""
        with reading(text):
            return read_coordinates(split(text))

    def logical_uri(self) -> str:
        """The result's name, the same wherever its bytes are kept."""
        head = (encode(self.tenant), encode(self.project), RESULTS, str(self.execution_id))
        text = join((*head, *self._place(None), f"{self.attempt}{self._task_suffix(None)}"), self.version)
        check_length(text)
        return text

    def effect_key(self) -> str:
        """What an outside system sees as the identity of the effect: at most 255 ASCII characters.

        It holds neither attempt nor version: a second delivery, a frame run again and a retry keep it; a
        jump back (another visit), a re-entry (another run) and a new epoch change it.
        """
        head = (encode(self.tenant), encode(self.project), str(self.execution_id))
        return bounded("/".join((*head, *self._place(None), f"effect{self._task_suffix(None)}")), EFFECT_KEY_CHARS)

    def effect_keys(self) -> EffectKeys:
        """The keys of whatever has these coordinates but for row, task, visit and attempt."""
        head = (encode(self.tenant), encode(self.project), str(self.execution_id))
        return EffectKeys("/".join((*head, *self._place(None)[:2])))

    def shard(self, root: int | None = None) -> int:
        """The logical shard of the execution, which is that of the root execution when another one called it."""
        return shard_of(self.tenant, self.project, self.execution_id if root is None else root)

    def physical_key(self, home: Home) -> str:
        """The object that holds the result's bytes."""
        suffix = self._task_suffix(KEY_PART_CHARS)
        return "/".join((self._prefix(home), *self._place(KEY_PART_CHARS), f"{self.attempt}{suffix}.bin"))

    def owns(self, key: str) -> bool:
        """Whether an object may hold this result: the key that one home or another derives for it, and no other's."""
        _, shard, own = self.physical_key(_ANYWHERE).partition("/tenant=")
        home, found, rest = key.partition("/tenant=")
        return found == shard and rest == own and _HOME.fullmatch(home) is not None

    def key_beside(self, key: str, root: int | None = None) -> str:
        """The object that holds this result where `key` holds that of the same work under another tenant's name."""
        home, _, _ = key.partition("/shard=")
        own = self.physical_key(_ANYWHERE).partition("/tenant=")[2]
        return f"{home}/shard={shard_label(self.shard(root))}/tenant={own}"

    def effect_object_key(self, home: Home) -> str:
        """The object whose existence says that the effect has happened: of a task, or of a frame's whole output."""
        place = self._place(KEY_PART_CHARS)
        if self.task is not None:
            return "/".join((self._prefix(home), *place, f"effect{self._task_suffix(KEY_PART_CHARS)}.bin"))
        if self.frame is None or self.row is not None:
            raise InvalidName(f"{show(self.effect_key())} is neither a task nor a whole frame, so no object guards it")
        return "/".join((self._prefix(home), *place[:-1], "effect.bin"))

    def _prefix(self, home: Home) -> str:
        return f"{execution_prefix(home, self.tenant, self.project, self.execution_id)}/{RESULTS}"

    def _place(self, limit: int | None) -> tuple[str, str, str]:
        frame = "0" if self.frame is None else str(self.frame)
        row = "0" if self.row is None else str(self.row + 1)
        return f"{_spell(self.step, limit)}~{self.run}", frame, row

    def _task_suffix(self, limit: int | None) -> str:
        return "" if self.task is None else f"~{_spell(self.task, limit)}.{self.visit}"


def _spell(text: str, limit: int | None) -> str:
    return encode(text) if limit is None else bounded(encode(text), limit)


def read_coordinates(address: Address) -> ResultCoordinates:
    """The coordinates inside the parts of a result name."""
    if len(address.segments) != _SEGMENTS or decode(address.segments[2]) != RESULTS or address.version is None:
        raise InvalidName("it does not have the parts of a result name", hint=_FORM)
    tenant, project, _, execution, step_run, frame, row, last = address.segments
    step, run = _read_step(decode(step_run))
    attempt, task, visit = _read_attempt(decode(last))
    return ResultCoordinates(
        tenant=read_segment("tenant", tenant),
        project=read_segment("project", project),
        execution_id=read_number("execution", decode(execution)),
        step=step,
        run=run,
        frame=_read_frame(decode(frame)),
        row=_read_row(decode(row)),
        attempt=attempt,
        task=task,
        visit=visit,
        version=address.version,
    )


def _read_step(text: str) -> tuple[str, int]:
    step, tilde, run = text.rpartition("~")
    if not tilde:
        raise InvalidName(f"step {show(text)} has no run", hint="write <step>~<run>")
    return step, read_number("run", run)


def _read_frame(text: str) -> FrameCoordinates | None:
    if text == "0":
        return None
    if not (found := _FRAME.fullmatch(text)):
        raise InvalidName(f"frame {show(text)} is neither e<epoch>.s<slot>.f<index> nor 0")
    epoch, slot, index = (read_number(role, part) for role, part in zip(_FRAME_ROLES, found.groups(), strict=True))
    return FrameCoordinates(epoch=epoch, slot=slot, index=index)


def _read_row(text: str) -> int | None:
    return read_number("row", text) - 1 if text != "0" else None


def _read_attempt(text: str) -> tuple[int, str | None, int | None]:
    attempt, tilde, rest = text.partition("~")
    number = read_number("attempt", attempt)
    if not tilde:
        return number, None, None
    task, dot, visit = rest.rpartition(".")
    if not dot:
        raise InvalidName(f"task {show(rest)} has no visit", hint="write <attempt>~<task>.<visit>")
    return number, task, read_number("visit", visit)


def execution_prefix(home: Home, tenant: str, project: str, execution_id: int) -> str:
    """What the keys of all objects of an execution begin with: its results, and what is archived of it."""
    parts = {
        "env": home.env,
        "region": home.region,
        "cell": home.cell,
        "shard": shard_label(shard_of(tenant, project, execution_id if home.root is None else home.root)),
        "tenant": tenant,
        "project": project,
        "date": day_of(execution_id),
        "execution": str(execution_id),
    }
    spelled = [f"{key}={bounded(encode(value), KEY_PART_CHARS)}" for key, value in parts.items()]
    return "/".join(("noetl", *spelled))


def day_of(execution_id: int) -> str:
    """The UTC day on which an execution's id was minted, `YYYY-MM-DD`."""
    return date.fromordinal(_UNIX_EPOCH_ORDINAL + unix_ms(execution_id) // _DAY_MS).isoformat()
