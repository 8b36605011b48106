"""Datasets of a project: their names, and the directories that have their files."""

from __future__ import annotations

from pathlib import Path

import msgspec

from noetl.errors import InvalidInput
from noetl.kernel.names import ResourceName, parse

__all__ = ["DIRECTORY", "Dataset", "Datasets"]

DIRECTORY = "datasets"
"""In the home. Below it each tenant and project has the files of its own."""


class Dataset(msgspec.Struct, frozen=True):
    """A dataset of the project: its name, and the directory that has its files."""

    uri: str
    path: Path


class Datasets(msgspec.Struct, frozen=True, kw_only=True):
    """The datasets of one project."""

    root: Path
    tenant: str
    project: str

    def find(self, name: str) -> Dataset:
        """The dataset of a name such as `datasets/customers`, or of its whole address. Raises InvalidInput."""
        found = parse(name) if "://" in name else self._of_path(name)
        if not isinstance(found, ResourceName):
            raise InvalidInput(f"'{name}' is not the name of a dataset", hint="write it as datasets/customers")
        if (found.tenant, found.project) != (self.tenant, self.project):
            raise InvalidInput(f"'{name}' belongs to another project", hint="name a dataset of this one")
        segments = (found.kind, *found.path)
        if any(segment.startswith(".") or "/" in segment for segment in segments):
            raise InvalidInput(f"'{name}' has a part that begins with a dot", hint="give the dataset another name")
        return Dataset(str(found), self.root.joinpath(self.tenant, self.project, *segments))

    def _of_path(self, name: str) -> ResourceName:
        kind, _, rest = name.strip("/").partition("/")
        if not rest:
            kind, rest = DIRECTORY, kind
        return ResourceName(tenant=self.tenant, project=self.project, kind=kind, path=tuple(rest.split("/")))
