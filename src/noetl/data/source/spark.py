"""The classes that PySpark wants of a data source. What they do is done by the modules beside this one.

Instances are made in processes of Spark's own and carried to others, so each holds plain values only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from noetl.data.source import events, kept
from noetl.data.source.events import Span, check_columns, spans, terms_of
from noetl.data.source.filters import narrowed, term_of
from noetl.data.source.following import Following, Offset
from noetl.data.source.locators import EventsLocator
from noetl.data.source.log import LogSpec, Term, open_log, url_of_home
from noetl.data.source.options import EventOptions, Options, read_options
from noetl.data.source.place import Place, place_here
from noetl.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["NoetlSource", "PushingNoetlSource"]


class NoetlSource(DataSource):
    """`format("noetl")`: events, results and datasets of an installation."""

    place: Place | None = None
    """The installation of the process that has registered it; without one, that of Spark's own processes."""
    ledger: str | None = None
    """The URL of a ledger that is in no home."""

    @classmethod
    def name(cls) -> str:
        """What users write in `format`."""
        return "noetl"

    def __init__(self, options: dict[str, str]) -> None:
        """Understand the options. Raises InvalidInput."""
        super().__init__(options)
        self.asked: Options = read_options(dict(options))
        self.found: kept.Found | None = None

    def schema(self) -> StructType:
        """The columns: those of events, or of what is kept there."""
        if isinstance(self.asked.locator, EventsLocator):
            return from_arrow_schema(events.SCHEMA)
        self.found = self._kept()
        return from_arrow_schema(self.found.schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch. Columns may be fewer than there are."""
        columns = to_arrow_schema(schema, timezone="UTC")
        if not isinstance(self.asked.locator, EventsLocator):
            return KeptReader(self._place(), self.found or self._kept(), columns)
        return self._events_reader(columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - PySpark's name
        """A stream over the ledger."""
        if not isinstance(self.asked.locator, EventsLocator):
            raise InvalidInput(
                "only events can be followed", hint="readStream...load('events'), or read this as a batch"
            )
        columns = to_arrow_schema(schema, timezone="UTC")
        check_columns(columns)
        return EventsStreamReader(*self._log(), columns, self.asked.events)

    def _events_reader(self, columns: pa.Schema) -> EventsReader:
        check_columns(columns)
        return EventsReader(*self._log(), columns, self.asked.events)

    def _log(self) -> tuple[LogSpec, tuple[Term, ...]]:
        place = self._place()
        settings = place.settings(os.environ)
        tenant = self.asked.tenant or settings.tenant.id
        spec = LogSpec(self.ledger or url_of_home(Path(place.home)), settings.ledger.busy_timeout)
        return spec, terms_of(self.asked.events, tenant)

    def _place(self) -> Place:
        at = self.place
        directory = Path.cwd() if at is None else Path(at.directory)
        here = place_here(os.environ, directory, self.asked.home or (None if at is None else at.home))
        return Place(
            home=here.home,
            directory=here.directory,
            tenant=self.asked.tenant or (None if at is None else at.tenant),
            project=self.asked.project or (None if at is None else at.project),
        )

    def _kept(self) -> kept.Found:
        return kept.find(self._place(), self.asked.locator, lineage=self.asked.lineage)


class PushingNoetlSource(NoetlSource):
    """The same for sessions that push filters; PySpark refuses a reader that takes them in any other."""

    def _events_reader(self, columns: pa.Schema) -> EventsReader:
        check_columns(columns)
        return PushingEventsReader(*self._log(), columns, self.asked.events)


class SpanPartition(InputPartition):
    """Positions that one task reads."""

    def __init__(self, span: Span) -> None:
        super().__init__((span.after, span.to))
        self.span = span


class EventsReader(DataSourceReader):
    """A batch of events, up to where the ledger was when the query was planned."""

    def __init__(self, spec: LogSpec, terms: tuple[Term, ...], columns: pa.Schema, options: EventOptions) -> None:
        if options.first is None:
            raise InvalidInput("fromPosition: latest is for streams", hint="give a position, or leave it out")
        self._spec, self._terms, self._columns, self._options = spec, terms, columns, options
        self._positions: tuple[Term, ...] = ()

    def partitions(self) -> list[InputPartition]:
        """Spans of positions."""
        options = self._options
        assert options.first is not None
        with open_log(self._spec) as log:
            head = log.head()
            if options.last is not None and options.last > head:
                raise InvalidInput(
                    f"toPosition {options.last} is after the end of the ledger, which is at {head}",
                    hint="give a position that there is, or leave it out",
                )
            whole = Span(options.first - 1, head if options.last is None else options.last)
            for term in self._positions:
                whole = narrowed(whole, term) or whole
            found = spans(log, self._terms, whole, options.rows_per_partition)
        return [SpanPartition(span) for span in found or [Span(0, 0)]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of a span."""
        assert isinstance(partition, SpanPartition)
        return _read_span(self._spec, self._columns, self._terms, partition.span)


class PushingEventsReader(EventsReader):
    """Events of which the ledger itself leaves out what a query does not want."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - PySpark's name
        """Take the conditions that the ledger can check; the others are Spark's."""
        for one in filters:
            term = term_of(one)
            if term is None:
                yield one
            elif narrowed(Span(0, 0), term) is not None:
                self._positions += (term,)
            else:
                self._terms += (term,)


class EventsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The ledger, followed by position."""

    def __init__(self, spec: LogSpec, terms: tuple[Term, ...], columns: pa.Schema, options: EventOptions) -> None:
        self._spec, self._terms, self._columns, self._options = spec, terms, columns, options
        self._following = Following(spec, terms, options)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        """Where a new stream begins."""
        return dict(self._following.initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - PySpark's name
        """That there is a limit; which, the options say."""
        limits = [self._options.rows_per_trigger, self._options.positions_per_trigger]
        given = [limit for limit in limits if limit is not None]
        return ReadMaxRows(min(given)) if given else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - PySpark's name
        """Stop at what is there now."""
        self._following.stop_at_head()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        """How far the next trigger reads."""
        is_limited = not isinstance(limit, ReadAllAvailable)
        return dict(self._following.latest(cast(Offset, start), is_limited=is_limited))

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        """Where the ledger ends."""
        return dict(self._following.head())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The spans of one trigger."""
        return [SpanPartition(span) for span in self._following.spans(cast(Offset, start), cast(Offset, end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of a span."""
        assert isinstance(partition, SpanPartition)
        return _read_span(self._spec, self._columns, self._terms, partition.span)


def _read_span(spec: LogSpec, columns: pa.Schema, terms: Sequence[Term], span: Span) -> Iterator[pa.RecordBatch]:
    with open_log(spec) as log:
        yield from events.batches(log, columns, terms, span)


class PartPartition(InputPartition):
    """A part of what is kept."""

    def __init__(self, part: kept.Part) -> None:
        super().__init__(None)
        self.part = part


class KeptReader(DataSourceReader):
    """A batch of rows that somebody has kept."""

    def __init__(self, place: Place, found: kept.Found, columns: pa.Schema) -> None:
        kept.check_columns(found.schema, columns)
        self._place, self._found, self._columns = place, found, columns

    def partitions(self) -> list[InputPartition]:
        """One for each object, group of rows or file."""
        return [PartPartition(part) for part in self._found.parts or (kept.Part(),)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part."""
        assert isinstance(partition, PartPartition)
        return kept.read(self._place, partition.part, self._columns)
