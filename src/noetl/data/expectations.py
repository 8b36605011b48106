"""`expect:` checks on the result of a task: counted while it is written, in the same pass.

A row passes a check that is true for it; one for which the check is false or null fails it. `warn` counts, `drop`
leaves the row out, `fail` fails the task, and then nothing of it is seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl.errors import InvalidInput
from noetl.kernel.event import Json
from noetl.playbook.validate.stages import ON_FAIL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

__all__ = ["Counting", "Expectation", "expectations_of"]

_ROWS, _KEPT = "rows", "kept"


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

    def __init__(self, frame: DataFrame, expectations: tuple[Expectation, ...]) -> None:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

        self._expectations = expectations
        self._observation: Observation = Observation()
        passed = [F.coalesce(F.expr(one.check).cast("boolean"), F.lit(False)) for one in expectations]
        dropping = [check for check, one in zip(passed, expectations, strict=True) if one.on_fail == "drop"]
        kept = F.lit(True)
        for check in dropping:
            kept = kept & check
        counts = [F.count_if(~check).alias(f"failed{place}") for place, check in enumerate(passed)]
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
             "failed": int(counted[f"failed{place}"])}
            for place, one in enumerate(self._expectations)
        ]  # fmt: skip
