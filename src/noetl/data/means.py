"""What the spark kind works with beside Spark: where payloads, results and datasets of an installation are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from noetl.errors import InvalidInput
from noetl.kernel.names import ResourceName
from noetl.payloads.results import ResultStore
from noetl.payloads.tiers import PayloadTiers
from noetl.tools.base import Tool

__all__ = ["Dataset", "Means"]


class Dataset(msgspec.Struct, frozen=True):
    """A dataset of the project: its name, and the directory that has its files."""

    uri: str
    path: Path


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
        from noetl.kernel.names import parse

        found = parse(name) if "://" in name else self._of_path(name)
        if not isinstance(found, ResourceName):
            raise InvalidInput(f"'{name}' is not the name of a dataset", hint="write it as datasets/customers")
        if (found.tenant, found.project) != (self.tenant, self.project):
            raise InvalidInput(f"'{name}' belongs to another project", hint="name a dataset of this one")
        segments = (found.kind, *found.path)
        if any(segment.startswith(".") or "/" in segment for segment in segments):
            raise InvalidInput(f"'{name}' has a part that begins with a dot", hint="give the dataset another name")
        return Dataset(str(found), self.datasets.joinpath(self.tenant, self.project, *segments))

    def _of_path(self, name: str) -> ResourceName:
        kind, _, rest = name.strip("/").partition("/")
        if not rest:
            kind, rest = "datasets", kind
        return ResourceName(tenant=self.tenant, project=self.project, kind=kind, path=tuple(rest.split("/")))
