"""Which installation a data source reads, found where it is registered: Spark's own processes know neither the
working directory nor the environment of the one that asks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from noetl.settings import Settings, load, resolve_home

__all__ = ["Place", "place_here"]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """An installation as seen from one process. Tenant and project are those of the settings, if none are named."""

    home: str
    directory: str
    """Where the process works: relative homes begin there, and `noetl.toml` is looked for."""
    tenant: str | None = None
    project: str | None = None

    def settings(self, environ: Mapping[str, str]) -> Settings:
        """The settings of the installation, read where they are needed: they may hold what no plan should carry."""
        flags = {"tenant.id": self.tenant, "tenant.project": self.project}
        return load(environ=environ, cwd=Path(self.directory), flags=flags)


def place_here(environ: Mapping[str, str], cwd: Path, home: str | Path | None = None) -> Place:
    """The installation that a command of the CLI would use in this process."""
    return Place(home=str(resolve_home(home, environ, cwd).absolute()), directory=str(cwd))
