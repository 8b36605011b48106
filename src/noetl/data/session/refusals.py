"""Why there is no session, in words that say what to do."""

from __future__ import annotations

from noetl.errors import InvalidInput, Unavailable

__all__ = ["SettingsDiffer", "SparkLost", "SparkUnavailable"]


class SparkUnavailable(Unavailable):
    """Spark cannot run here: PySpark or Java is missing, or it did not start. A task fails with `code`."""

    code = "KIND_UNAVAILABLE"


class SparkLost(SparkUnavailable):
    """Spark's Java process was killed, or has broken down. The next one may do better."""

    code = "SPARK_LOST"


class SettingsDiffer(InvalidInput):
    """A session is asked for with a setting that the process's session was started without."""

    code = "SPARK_SETTINGS_DIFFER"

    def __init__(self, name: str, have: str | None, want: str) -> None:
        has = f"has {name} = {have}" if have is not None else f"was started without {name}"
        super().__init__(
            f"the Spark session of this process {has}, which is fixed when it starts, and {name} = {want} is asked for",
            hint=f"remove {name} from executor.spec.spark, set spark.conf or spark.master for all runs, "
            "or run this playbook in a process of its own",
        )
        self.name = name
        self.have = have
        self.want = want
