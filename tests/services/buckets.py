"""A bucket as the tests use it: where it is, how to enter, and a way to make another."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from noetl.adapters.objects.urls import open_store
from noetl.ports.objects import ObjectStore

__all__ = ["Bucket", "fresh_name"]

QUICK = {"retries": 2, "retry_for": "5s", "connect_timeout": "2s", "timeout": "20s"}
_numbers = itertools.count()


@dataclass(frozen=True)
class Bucket:
    """One bucket of an emulator."""

    url: str
    options: Mapping[str, object] = field(default_factory=dict)
    credentials: Mapping[str, str] = field(default_factory=dict)

    async def open(
        self, prefix: str = "", *, credentials: Mapping[str, str] | None = None, **options: object
    ) -> ObjectStore:
        """The store in it, with few and quick retries."""
        return await open_store(
            f"{self.url}/{prefix}",
            {**QUICK, **self.options, **options},
            self.credentials if credentials is None else credentials,
        )


def fresh_name() -> str:
    """The name of a bucket that no test of this run has used."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    return f"noetl-{worker}-{os.getpid()}-{next(_numbers)}"
