"""The code of a spark task: `def main(spark, ...)`, called with what its parameters ask for by name."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noetl.data.modules import UserModules
from noetl.errors import InvalidInput
from noetl.kernel.lazy import LazyMapping, LazySequence, plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["call_main", "file_of", "frame_in"]

_MAIN = "main"


def file_of(name: str) -> str:
    """What tracebacks call the code of a task."""
    return f"<{name}>"


def call_main(code: str, name: str, given: Mapping[str, Any], roots: Sequence[Path] = ()) -> Any:
    """Run the code and call its `main`. Raises InvalidInput for code without one, and whatever the code raises.

    It may import the modules in `roots`. The source is made known to tracebacks under `name`, so that the user sees the
    lines of the task.
    """
    file = file_of(name)
    linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
    scope: dict[str, Any] = {"__name__": "__noetl_spark__", "__builtins__": UserModules(roots).builtins}
    exec(compile(code, file, "exec"), scope)  # noqa: S102 - the user's code is what this task is
    main = scope.get(_MAIN)
    if not callable(main):
        raise InvalidInput("the code defines no main", hint="write def main(spark, orders): return orders")
    return main(**_arguments(main, given))


def _arguments(main: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(main).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return dict(given)
    wanted = {one.name: one for one in parameters}
    missing = [name for name, one in wanted.items() if name not in given and one.default is one.empty]
    if missing:
        raise InvalidInput(
            f"main wants {', '.join(missing)}, which the task does not give",
            hint=f"it gives {', '.join(given)}; add to inputs or input",
        )
    return {name: given[name] for name in wanted if name in given}


def frame_in(value: Any, session: SparkSession) -> DataFrame | None:
    """What code has returned, as a DataFrame; None for nothing. Raises InvalidInput."""
    import pyarrow as pa

    if value is None or hasattr(value, "mapInArrow"):
        return value  # type: ignore[no-any-return]
    if isinstance(value, LazyMapping | LazySequence):
        value = plain(value)
    if isinstance(value, pa.Table) or type(value).__module__.startswith("pandas."):
        return session.createDataFrame(value)
    if isinstance(value, Mapping):
        value = [value]
    if isinstance(value, list | tuple):
        from noetl.data.frame.output import table_in
        from noetl.data.sources.staging import fitting

        table = table_in(list(value))
        return session.createDataFrame(table.cast(fitting(table.schema)))
    raise InvalidInput(
        f"main returned {type(value).__name__}", hint="return a DataFrame, a table of pandas or Arrow, rows, or None"
    )
