"""`expect:` checks on the result of a task: counted while it is written, in the same pass.

A row passes a check that is true for it; one for which the check is false or null fails it. `warn` counts, `drop`
leaves the row out, `fail` fails the task, and then nothing of it is seen. Of the rows that fail, the first and the last
in the order of their text are kept to be shown: the same ones, however the rows are divided among tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.data.session.explaining import explain
from noetl.errors import InvalidInput
from noetl.kernel.event import Json
from noetl.playbook.validate.stages import ON_FAIL

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

__all__ = ["Counting", "Expectation", "expectations_of"]

_ROWS, _KEPT = "rows", "kept"
_PLAIN = frozenset({"boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "string", "date",
                    "timestamp", "timestamp_ntz", "tinyint", "smallint", "int", "bigint"})  # fmt: skip
_SHOWN_TEXT = 1000
_MOST_TEXT = 8 * _SHOWN_TEXT
"""So much of a row is looked through for secrets. One that is cut in two at the end of it is not shown at all."""


class Expectation(msgspec.Struct, frozen=True):
    """One check."""

    name: str
    check: str
    on_fail: str = "warn"


def expectations_of(said: Any) -> tuple[Expectation, ...]:
    """The checks of a task. Raises InvalidInput."""
    if not said:
        return ()
    try:
        found = msgspec.convert(said, tuple[Expectation, ...])
    except msgspec.ValidationError as error:
        raise InvalidInput(f"expect: {error}", hint='write {name: positive, check: "total >= 0"}') from None
    for one in found:
        if one.on_fail not in ON_FAIL:
            raise InvalidInput(f"expect '{one.name}': on_fail: '{one.on_fail}' is none of {', '.join(ON_FAIL)}")
    return found


class Counting:
    """A result that is counted while somebody writes it. What was counted is there when that is done."""

    def __init__(
        self,
        frame: DataFrame,
        expectations: tuple[Expectation, ...],
        masked: Callable[[Any], Any] | None = None,
    ) -> None:
        """`masked` takes secrets out of what is shown."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

        self._expectations = expectations
        self._masked = masked or (lambda value: value)
        self._observation: Observation = Observation()
        passed = [_passing(frame, one) for one in expectations]
        dropping = [check for check, one in zip(passed, expectations, strict=True) if one.on_fail == "drop"]
        kept = F.lit(True)
        for check in dropping:
            kept = kept & check
        counts = [F.count_if(~check).alias(f"failed{place}") for place, check in enumerate(passed)]
        text = _text_of(frame) if expectations else F.lit(None)
        for place, check in enumerate(passed):
            failing = F.when(~check, text)
            counts += [F.min(failing).alias(f"first{place}"), F.max(failing).alias(f"last{place}")]
        observed = frame.observe(
            self._observation, F.count(F.lit(1)).alias(_ROWS), F.count_if(kept).alias(_KEPT), *counts
        )
        self.frame: DataFrame = observed.filter(kept) if dropping else observed
        self._found: Json | None = None

    def _counted(self) -> Json:
        if self._found is None:
            self._found = dict(self._observation.get)
        return self._found

    @property
    def rows(self) -> int:
        """How many rows were left after those that were dropped."""
        return int(self._counted()[_KEPT])

    def said(self) -> list[Json]:
        """The checks with their counts, as the result has them."""
        counted = self._counted()
        return [
            {"name": one.name, "check": one.check, "on_fail": one.on_fail, "rows": int(counted[_ROWS]),
             "failed": int(counted[f"failed{place}"]),
             "examples": self._examples(counted[f"first{place}"], counted[f"last{place}"])}
            for place, one in enumerate(self._expectations)
        ]  # fmt: skip

    def _examples(self, *texts: str | None) -> list[Any]:
        return [self._shown(text) for text in dict.fromkeys(texts) if text is not None]

    def _shown(self, text: str) -> Any:
        if len(text) <= _SHOWN_TEXT:
            return self._masked(msgspec.json.decode(text))
        return f"{self._masked(text)[:_SHOWN_TEXT]}..."


def _passing(frame: DataFrame, one: Expectation) -> Column:
    """Whether a row passes. Raises InvalidInput for a check that Spark does not understand."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F  # noqa: N812

    try:
        column = F.coalesce(F.expr(one.check).cast("boolean"), F.lit(False))
        frame.select(column)  # looked at now, so that the check can be named
    except AnalysisException as error:
        said = f"expect '{one.name}': {explain(error).message}"
        raise InvalidInput(said, hint=f"correct its check: {one.check}") from error
    return column


def _text_of(frame: DataFrame) -> Column:
    """A row as JSON. What has no plain form there is the text that Spark shows."""
    from pyspark.sql import functions as F  # noqa: N812

    columns = []
    for field in frame.schema:
        column = F.col("`" + field.name.replace("`", "``") + "`")
        is_plain = field.dataType.typeName().partition("(")[0] in _PLAIN
        columns.append((column if is_plain else column.cast("string")).alias(field.name))
    return F.substring(F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}), 1, _MOST_TEXT)
