"""Variables of Spark's Python workers, for what one thread asks of Spark.

PySpark keeps them with the context, of which a process has one. Workers with other variables are other processes, so
it is by them that tasks of different directories are kept apart: what one has imported, another never sees.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["WorkerVariables", "keep_variables", "with_variables"]

_NONE: Mapping[str, str] = MappingProxyType({})
_over: ContextVar[Mapping[str, str]] = ContextVar("worker_variables", default=_NONE)
_lock = threading.Lock()
_of_sessions: weakref.WeakKeyDictionary[Any, dict[str, str]] = weakref.WeakKeyDictionary()


class WorkerVariables(MutableMapping[str, str]):
    """What PySpark reads when a function is given to it: everybody's, and over them those of the thread that reads."""

    def __init__(self, everybodys: Mapping[str, str]) -> None:
        self._everybodys = dict(everybodys)

    def __getitem__(self, name: str) -> str:
        over = _over.get()
        return over[name] if name in over else self._everybodys[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._everybodys, **_over.get()})

    def __len__(self) -> int:
        return len({**self._everybodys, **_over.get()})

    def __setitem__(self, name: str, value: str) -> None:
        self._everybodys[name] = value

    def __delitem__(self, name: str) -> None:
        del self._everybodys[name]


def keep_variables(session: SparkSession, variables: Mapping[str, str]) -> None:
    """Let the jobs of a session have these, from now on."""
    with _lock:
        _of_sessions[session] = {**_of_sessions.get(session, {}), **variables}


@contextlib.contextmanager
def with_variables(session: SparkSession, variables: Mapping[str, str] | None = None) -> Iterator[None]:
    """What this thread gives to Spark in the block runs where the session's variables are, and these over them."""
    context: Any = session.sparkContext
    with _lock:
        if not isinstance(context.environment, WorkerVariables):
            context.environment = WorkerVariables(context.environment)
        found = _of_sessions.get(session, {})
    token = _over.set({**_over.get(), **found, **(variables or {})})
    try:
        yield
    finally:
        _over.reset(token)
