"""Finding garbage by Spark: it fills the same inventory, and deletes nothing.

Events that come while Spark works are read here afterwards, and whatever they name is acquitted. The deletion looks at
the log and the object once more, as it does after a search without Spark.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from noetl.adapters.sqlite.inventory import Inventory
from noetl.data.source.place import Place, place_here
from noetl.data.sweeps.shards import plan_shards
from noetl.data.sweeps.shelf import fingerprint, opened_shelf
from noetl.data.sweeps.spec import SweepSpec
from noetl.runtime.gc.collector import Collector, Progress
from noetl.runtime.gc.ownership import OWNER_KEY
from noetl.runtime.gc.references import References, archived_roots, documents_of
from noetl.runtime.installation import STORE_KEY
from noetl.runtime.wiring import Embedded

__all__ = ["find_in_spark", "place_of"]


async def find_in_spark(
    embedded: Embedded,
    collector: Collector,
    references: References,
    inventory: Inventory,
    *,
    trace: bool,
    progress: Progress,
) -> None:
    """Suspect what is dead, as `Collector.find` does. Raises as it does, and SparkUnavailable."""
    from noetl.data.sweeps.garbage import Garbage
    from noetl.data.sweeps.session import sweep_session

    place = place_of(embedded)
    spec = SweepSpec(
        place=place,
        fingerprint=fingerprint(place, embedded.settings),
        now=embedded.clock.now(),
        grace=collector.grace,
        marks=(OWNER_KEY, STORE_KEY),
        follow=not trace,
    )
    async with opened_shelf(place, spec.fingerprint) as shelf:
        position = await shelf.ledger.position()
        shards = await plan_shards(shelf.objects)
    async with sweep_session(Path(place.home), embedded.settings, "noetl-gc") as spark:
        garbage = Garbage(spark.session, spec)
        before = await archived_roots(embedded.ledger)
        await spark.run(lambda: garbage.hear(position), "noetl gc: what the log refers to")
        # One that went, or came back, while the log was read may have done so behind the reader.
        archived = list(dict.fromkeys([*before, *await archived_roots(embedded.ledger)]))
        heard = await spark.run(lambda: garbage.hear_archived(archived), "noetl gc: what archives refer to")
        progress("read events", heard.events)
        tenants = {*heard.tenants, embedded.settings.tenant.id}
        documents = [digest async for page in documents_of(embedded.catalog, tenants) for digest in page]
        seen = await spark.run(lambda: garbage.look(shards, documents), "noetl gc: what is in the store")
        progress("looked at objects", seen.objects)
        damaged: tuple[str, ...] = ()
        if seen.dead:
            damaged = await spark.run(lambda: garbage.acquit(trace=trace), "noetl gc: what objects name")
            await spark.run(lambda: garbage.tell(inventory.suspect), "noetl gc: what is dead")
    counts = collector.counts
    counts.objects, counts.bytes, counts.young, counts.foreign = seen.objects, seen.bytes, seen.young, seen.foreign
    counts.damaged = list(damaged)
    await references.go_on_from(position, heard.events, archived)
    collector.reconsider()


def place_of(embedded: Embedded) -> Place:
    """The installation, as the processes of Spark are to find it."""
    assert embedded.home is not None
    tenant = embedded.settings.tenant
    place = place_here(os.environ, Path.cwd(), embedded.home.path)
    return msgspec.structs.replace(place, tenant=tenant.id, project=tenant.project)
