"""Spark sessions: one per process, started in the background, shared by all runs in it.

`SparkSessions` is the door. A session is one of three: a JVM of this process (local, or driving a cluster), the warm
JVM that `noetl spark start` keeps for the runs of a home, or a Spark Connect server somewhere. The first two are
*classic*: they have a `sparkContext`, which data stages need. Nothing here imports PySpark before it is used.
"""

from noetl.data.session.conf import SessionConf, session_conf
from noetl.data.session.explaining import Explained, explain
from noetl.data.session.jobs import Running, run_job, running
from noetl.data.session.refusals import SettingsDiffer, SparkLost, SparkUnavailable
from noetl.data.session.sessions import SessionInfo, SparkSessions

__all__ = [
    "Explained",
    "Running",
    "SessionConf",
    "SessionInfo",
    "SettingsDiffer",
    "SparkLost",
    "SparkSessions",
    "SparkUnavailable",
    "explain",
    "run_job",
    "running",
    "session_conf",
]
