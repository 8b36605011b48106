"""What the spark kind works with beside Spark: where payloads, results and datasets of an installation are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from noetl.data.datasets import Dataset, Datasets
from noetl.payloads.results import ResultStore
from noetl.payloads.tiers import PayloadTiers
from noetl.tools.base import Tool

__all__ = ["Means"]


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """Given to the tool by whoever wires an installation."""

    tiers: PayloadTiers
    results: ResultStore
    datasets: Path
    """Below it each tenant and project has the files of its datasets."""
    tenant: str
    project: str
    http: Callable[[], Tool]
    """The tool that asks for pages, with the limits of this installation."""
    extensions: Path | None = None
    """Where DuckDB looks for extensions."""

    def dataset(self, name: str) -> Dataset:
        """The dataset of a name such as `datasets/customers`, or of its whole address. Raises InvalidInput."""
        return Datasets(root=self.datasets, tenant=self.tenant, project=self.project).find(name)
