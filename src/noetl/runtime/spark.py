"""The data plane for an installation: whether Spark is there, and the tools of the spark and transfer kinds.

Nothing of PySpark is imported to find out, and a run without a data stage imports nothing of the data plane.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from noetl.playbook.document import Playbook
from noetl.tools.base import Tool

if TYPE_CHECKING:
    from noetl.data.means import Means
    from noetl.data.session import SessionConf, SparkSessions
    from noetl.payloads.results import ResultStore
    from noetl.payloads.tiers import PayloadTiers
    from noetl.runtime.driver import Origin
    from noetl.runtime.home import Home
    from noetl.settings import Settings

__all__ = ["Stock", "means_of", "needs_spark", "spark_maker", "transfer_maker", "why_no_pyspark"]


class Stock(Protocol):
    """What the data plane takes from the installation that it works for."""

    @property
    def settings(self) -> Settings:
        """How it is set up."""
        ...

    @property
    def home(self) -> Home | None:
        """Its directory; None for one that has none."""
        ...

    @property
    def tiers(self) -> PayloadTiers:
        """Payloads, and what is kept of them nearby."""
        ...

    @property
    def results(self) -> ResultStore:
        """The results of steps."""
        ...


def why_no_pyspark() -> str | None:
    """Why spark tasks cannot run here; None if PySpark is installed. Whether Java is, a session finds out."""
    return None if find_spec("pyspark") is not None else 'it needs Spark: pip install "noetl[spark]"'


def needs_spark(playbook: Playbook) -> bool:
    """Whether some task of a playbook is for Spark."""
    tasks = [task for step in playbook.steps.values() for task in step.tasks]
    tasks += [entry.task for entry in playbook.workbook.values()]
    return any(task.kind == "spark" for task in tasks)


def means_of(stock: Stock, origin: Origin, scratch: Path, http: Callable[[], Tool]) -> Callable[[], Means]:
    """What tools of the data plane work with, made when one of them needs it."""

    def make() -> Means:
        from noetl.data.datasets import DIRECTORY
        from noetl.data.means import Means

        extensions = stock.settings.tools.duckdb_extensions
        return Means(
            tiers=stock.tiers,
            results=stock.results,
            datasets=_home(stock, scratch) / DIRECTORY,
            tenant=origin.tenant_id,
            project=origin.project_id,
            http=http,
            extensions=Path(extensions) if extensions else None,
        )

    return make


def _home(stock: Stock, scratch: Path) -> Path:
    return scratch if stock.home is None else stock.home.path.absolute()


def transfer_maker(means: Callable[[], Means]) -> Callable[[], Tool]:
    """Makes the tool when the first task asks for it."""

    def make() -> Tool:
        from noetl.data.transfer.tool import TransferTool

        return TransferTool(means=means)

    return make


def spark_maker(stock: Stock, scratch: Path, means: Callable[[], Means]) -> Callable[[], Tool]:
    """Makes the tool when the first task asks for it."""
    home = _home(stock, scratch)

    def make() -> Tool:
        from noetl.data.tool import SparkTool

        return SparkTool(sessions=sessions, conf=conf, means=means())

    def sessions() -> SparkSessions:
        from noetl.data.session import SparkSessions

        return SparkSessions.shared(home)

    def conf(asked: Mapping[str, Any]) -> SessionConf:
        from noetl.data.session import session_conf

        return session_conf(stock.settings.spark, asked)

    return make
