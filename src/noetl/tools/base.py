"""What every tool is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from noetl.kernel.event import Json

if TYPE_CHECKING:
    from noetl.payloads.resolver import Caller, Resolver

__all__ = ["Call", "Outcome", "Rendering", "Tool", "failed", "ok"]

Rendering = Literal["lenient", "strict", "code", "raw", "lazy"]
"""How a field's templates are treated (DSL 8): a raw field is handed over as written, and a lenient one that is lazy
(`input`) may hold tables that are not JSON."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of one task, with everything rendered and every secret resolved."""

    kind: str
    input: Json = {}
    fields: Json = {}
    auth: Any = None
    """Credential data by alias, or the data of the one credential the task names."""
    timeout: float | None = None
    effect_key: str = ""
    execution_id: str = ""
    step: str = ""
    task: str = ""
    attempt: int = 1
    told: Callable[[], Json] = dict
    """Puts `context` together; most calls never ask for it."""
    directory: Path = Path()
    """Where relative paths of this call begin."""
    scratch: Path = Path()
    """A directory of the execution's own, for databases and large bodies."""
    offered: Mapping[str, Any] = {}
    """Names that code may use without being given them, such as the frame that it runs for."""
    masked: Callable[[Any], Any] | None = None
    """Takes the secrets of the execution out of what a tool keeps beside its result; None where there are none."""
    session: Json = {}
    """What the playbook asks of the session that its data stages run in."""
    resolver: Resolver | None = None
    """Follows addresses for the tool: `noetl://`, `s3://`, `gs://`, `az://`, `file://`."""

    @property
    def context(self) -> Json:
        """For code that asks for it: workload, ctx, step results and identity."""
        return self.told()

    def caller(self, auth: Any, options: Mapping[str, object] | None = None) -> Caller:
        """Whom the resolver acts for: this call, with a credential and, where the playbook says more, with options."""
        from noetl.payloads.resolver import Caller

        scratch = self.scratch if self.scratch.parts else None
        return Caller(auth=auth, options=options or {}, directory=self.directory, scratch=scratch)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a call. The tool alone decides whether it is an error."""

    result: Any = None
    error: Json | None = None
    extra: Json = {}
    """`http`, `pg` or `py`, as the language reference gives them."""
    logs: str = ""
    """What the call printed."""

    @property
    def status(self) -> str:
        """`ok` or `error`."""
        return "ok" if self.error is None else "error"


class Tool(Protocol):
    """A kind of task."""

    kind: str
    rendering: Mapping[str, Rendering]
    """Fields that are not rendered leniently."""
    required: tuple[tuple[str, ...], ...]
    """Groups of fields of which one must be there, else FIELD_MISSING."""

    def side_effecting(self, fields: Json) -> bool:
        """Whether running it again could be noticed by somebody."""
        ...

    async def run(self, call: Call) -> Outcome:
        """Do it. Every failure is an outcome; only a fault of our own may raise."""
        ...

    async def close(self) -> None:
        """Let go of processes, pools and connections."""
        ...


def ok(result: Any, **extra: Any) -> Outcome:
    """A call that worked."""
    return Outcome(result=result, extra=extra)


def failed(
    kind: str,
    code: str,
    message: str,
    *,
    retryable: bool | None = None,
    result: Any = None,
    extra: Json | None = None,
    logs: str = "",
    **more: Any,
) -> Outcome:
    """A call that did not. Whether it may be retried follows from its kind unless said otherwise (DSL 7.3)."""
    again = kind in _RETRYABLE if retryable is None else retryable
    error: Json = {"kind": kind, "code": code, "message": message, "retryable": again, **more}
    return Outcome(result=result, error=error, extra=extra or {}, logs=logs)


_RETRYABLE = frozenset(
    {"connection", "timeout", "rate_limit", "server_error", "db_connection", "db_deadlock", "db_timeout",
     "missing_reference"}
)  # fmt: skip
