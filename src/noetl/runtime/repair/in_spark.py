"""Repair with Spark: it reads the objects, of which almost all are sound; the others are mended here, one by one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from noetl.data.sweeps.shelf import fingerprint, opened_shelf
from noetl.data.sweeps.spec import SweepSpec
from noetl.runtime.gc.in_spark import place_of
from noetl.runtime.gc.references import archived_roots
from noetl.runtime.repair.needs import Looked, Need, inside_of, needs_of_event
from noetl.runtime.repair.repairer import Repairer
from noetl.runtime.wiring import Embedded

if TYPE_CHECKING:
    from noetl.data.sweeps.damage import Unsound

__all__ = ["repair_in_spark"]


async def repair_in_spark(embedded: Embedded, repairer: Repairer, progress: Callable[[str, int], None]) -> None:
    """Look at every object that the log needs, archives included, as `repair` does. Raises SparkUnavailable.

    It looks at what the log had when it began. What is found is looked at once more before anything is done.
    """
    from noetl.data.sweeps.damage import Damage
    from noetl.data.sweeps.session import sweep_session

    place = place_of(embedded)
    spec = SweepSpec(place=place, fingerprint=fingerprint(place, embedded.settings))
    async with opened_shelf(place, spec.fingerprint) as shelf:
        position = await shelf.ledger.position()
    looked = Looked()
    async with sweep_session(Path(place.home), embedded.settings, "noetl-repair") as spark:
        damage = Damage(spark.session, spec)
        roots = await archived_roots(embedded.ledger)
        checked = await spark.run(
            lambda: damage.check(position, roots), "noetl repair: every object that the log needs"
        )
        progress("looked at objects", checked.objects)
        repairer.report.objects, repairer.report.bytes = checked.objects, checked.sound_bytes
        while page := await spark.run(damage.some, "noetl repair: what is not sound"):
            for one in page:
                if looked.is_new(one.key):  # else a list that was mended has led to it
                    await _mend(embedded, repairer, one, looked)


async def _mend(embedded: Embedded, repairer: Repairer, one: Unsound, looked: Looked) -> None:
    need = await _need_of(embedded, one)
    if need is None:
        return  # the list that names it has been lost since: the next repair begins with that
    await repairer.mend(need)
    async for inner in inside_of(embedded.objects, need):
        if looked.is_new(inner.key):
            await repairer.look_at(inner)


async def _need_of(embedded: Embedded, one: Unsound) -> Need | None:
    """What the first event that leads to an object says of it."""
    span = {"after_position": one.position - 1, "to_position": one.position, "limit": 1}
    page = await (embedded.ledger.read_all(**span) if one.root is None else embedded.ledger.read_root(one.root, **span))
    for found in page:  # none, if it has left the ledger since: the next repair finds it in its archive
        for need in needs_of_event(found.event):
            if need.key == one.key:
                return need
            async for inner in inside_of(embedded.objects, need):
                if inner.key == one.key:
                    return inner
    return None
