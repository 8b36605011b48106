"""Metrics as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from noetl import __version__
from noetl.observe.metrics import INSTRUMENTS

__all__ = ["CONTENT_TYPE", "PrometheusRecorder"]

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_MOST_LABEL = 64


class PrometheusRecorder:
    """All instruments in a registry of their own: what other libraries of the process count is not ours to show."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        self._gauges: dict[str, Gauge] = {}
        for name, instrument in INSTRUMENTS.items():
            match instrument.kind:
                case "counter":
                    self._counters[name] = Counter(name, instrument.help, instrument.labels, registry=self._registry)
                case "histogram":
                    self._histograms[name] = Histogram(
                        name, instrument.help, instrument.labels, buckets=instrument.buckets, registry=self._registry
                    )
                case "gauge":
                    self._gauges[name] = Gauge(name, instrument.help, instrument.labels, registry=self._registry)
        self.level("noetl_build_info", 1, __version__)

    def count(self, name: str, amount: float, labels: tuple[str, ...]) -> None:
        """Add to a counter."""
        counter = self._counters[name]
        (counter.labels(*_short(labels)) if labels else counter).inc(amount)

    def observe(self, name: str, value: float, labels: tuple[str, ...]) -> None:
        """Add one value to a histogram."""
        histogram = self._histograms[name]
        (histogram.labels(*_short(labels)) if labels else histogram).observe(value)

    def shift(self, name: str, amount: float, labels: tuple[str, ...]) -> None:
        """Move a gauge up or down."""
        gauge = self._gauges[name]
        (gauge.labels(*_short(labels)) if labels else gauge).inc(amount)

    def level(self, name: str, value: float, *labels: str) -> None:
        """Set a gauge that is looked up when somebody asks."""
        gauge = self._gauges[name]
        (gauge.labels(*labels) if labels else gauge).set(value)

    def levels(self, name: str, values: Mapping[tuple[str, ...], float]) -> None:
        """Set a gauge for all its labels at once; what it had for others is forgotten."""
        gauge = self._gauges[name]
        gauge.clear()
        for labels, value in values.items():
            gauge.labels(*_short(labels)).set(value)

    def text(self) -> bytes:
        """Everything, in the text format."""
        return generate_latest(self._registry)


def _short(labels: tuple[str, ...]) -> list[str]:
    return [label[:_MOST_LABEL] for label in labels]
