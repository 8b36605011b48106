"""A command on its way to a worker. Its document goes along once; after that the worker has it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from noetl.kernel import canonical
from noetl.kernel.event import Json
from noetl.kernel.names import Home
from noetl.playbook.document import Playbook
from noetl.runtime.control import Claim
from noetl.runtime.worker import Work
from noetl.tools.authority import Authority

__all__ = ["MOST_KNOWN", "Documents", "Given", "given", "read_given"]

MOST_KNOWN = 32
"""How many documents a worker remembers, and names when it asks."""
_NOTHING = b"null"
_APART = frozenset({"playbook", "step", "authority", "home", "env", "offered", "frame"})
_PLAIN = tuple(name for name in Work.__struct_fields__ if name not in _APART)


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """A command in the hands of whoever has asked for it."""

    token: int
    stage: int
    ended: bool
    work: Work
    placement: Json
    """Why it was given to this worker, for a command that wants to run somewhere."""


class _Sent(msgspec.Struct, frozen=True, kw_only=True):
    token: int
    stage: int
    ended: bool
    document: str
    playbook: msgspec.Raw
    """`null` for one that the worker has."""
    work: msgspec.Raw
    placement: Json = {}


class Documents:
    """The last few documents, by their names on the way."""

    def __init__(self, most: int = MOST_KNOWN) -> None:
        self._most = most
        self._kept: OrderedDict[str, Any] = OrderedDict()

    def now(self) -> dict[str, Any]:
        """What is there at this moment, whatever makes room later."""
        return dict(self._kept)

    def get(self, name: str) -> Any:
        """What is kept under a name, or None."""
        if name in self._kept:
            self._kept.move_to_end(name)
        return self._kept.get(name)

    def keep(self, name: str, document: Any) -> None:
        """Remember one; the one that was asked for longest ago makes room."""
        self._kept[name] = document
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)


def given(claim: Claim, known: Collection[str], written: Documents, placement: Json) -> bytes:
    """A command as it is sent to a worker that knows these documents; `written` keeps what was written before."""
    work, name = claim.work, _name_of(claim.work)
    playbook = _NOTHING
    if name not in known:
        playbook = written.get(name) or canonical.encode(msgspec.to_builtins(work.playbook))
        written.keep(name, playbook)
    return msgspec.json.encode(
        _Sent(
            token=claim.lease.token,
            stage=claim.stage,
            ended=claim.ended,
            document=name,
            playbook=msgspec.Raw(playbook),
            work=msgspec.Raw(canonical.encode(_plain(work))),
            placement=placement,
        )
    )


def read_given(data: bytes, known: Mapping[str, Playbook], documents: Documents) -> Given:
    """What was sent to who knew these documents; a new one is remembered."""
    sent = msgspec.json.decode(data, type=_Sent)
    if bytes(sent.playbook) == _NOTHING:
        playbook = known[sent.document]
    else:
        playbook = msgspec.convert(canonical.decode(bytes(sent.playbook)), Playbook)
        documents.keep(sent.document, playbook)
    said: Json = canonical.decode(bytes(sent.work))
    step, authority, home = said.pop("step"), said.pop("authority"), said.pop("home")
    work = Work(
        playbook=playbook,
        step=playbook.steps[step],
        authority=Authority.read(authority),
        home=None if home is None else msgspec.convert(home, Home),
        **said,
    )
    return Given(token=sent.token, stage=sent.stage, ended=sent.ended, work=work, placement=sent.placement)


def _name_of(work: Work) -> str:
    """A document by its digest; one that is entered at another step is another one."""
    return f"{work.document}:{work.playbook.entry}"


def _plain(work: Work) -> Json:
    home = None if work.home is None else msgspec.to_builtins(work.home)
    own: Json = {"step": work.step.name, "authority": work.authority.recorded(), "home": home}
    return own | {name: getattr(work, name) for name in _PLAIN}
