"""JVMs that start quickly, for tests that start many.

One that lives for a minute loses by compiling for hours of work and by collecting on all cores. And most of its start
is loading Spark's classes, which are the same ten thousand each time: an archive of them, which the first run of the
tests makes and later ones find under build/, is mapped instead. A JVM looks for itself whether the archive was made
by the same Java from the same jars, and loads its classes as ever if not.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from noetl.data.session.distribution import spark_home
from noetl.data.session.java import Java, find_java

__all__ = ["QUICK", "quick_java"]

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_ARCHIVES = Path(__file__).resolve().parents[2] / "build" / "java"
_SECONDS = 240
_WORK = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range(20).selectExpr("id % 3 AS k", "id", "named_struct('a', array(id)) AS s").createOrReplaceTempView("t")
asked = "SELECT k, count(*) AS n, collect_list(u.id) AS ids, first(t.s) AS s FROM t JOIN t AS u USING (k) GROUP BY k"
spark.sql(f"{asked} ORDER BY n").toArrow()
spark.sql("SELECT *, row_number() OVER (PARTITION BY k ORDER BY id) AS r FROM t").write.parquet(sys.argv[1] + "/p")
spark.read.parquet(sys.argv[1] + "/p").mapInArrow(lambda batches: batches, "k long, id long").count()
spark.read.json(spark.sparkContext.parallelize(['{"a": 1}'], 2)).collect()
"""


def quick_java() -> dict[str, str]:
    """What lets every driver, master and worker that is started with these variables begin quickly."""
    found = archive()
    mapped = f" -XX:SharedArchiveFile={found} -Xlog:disable -Xlog:all=error:stderr" if found else ""
    options = f"{QUICK}{mapped}"
    return {"SPARK_SUBMIT_OPTS": options, "SPARK_DAEMON_JAVA_OPTS": options, "SPARK_LAUNCHER_OPTS": QUICK}


def archive() -> Path | None:
    """Spark's classes as this Java maps them; made by whoever comes first, as a whole or not at all. None if this Java
    makes no archives: some come without the one of their own that ours would build upon."""
    java, spark = find_java(), spark_home()
    name = hashlib.sha256(f"{java.home}\0{java.version}\0{spark}\0{_WORK}".encode()).hexdigest()[:12]
    target = _ARCHIVES / f"spark-{name}.jsa"
    _ARCHIVES.mkdir(parents=True, exist_ok=True)
    with (_ARCHIVES / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _make(target, java, spark)
    return target if target.exists() else None


def _make(target: Path, java: Java, spark: Path) -> None:
    """Let Spark do some of what tests let it do, and write down what it has loaded when it ends."""
    with tempfile.TemporaryDirectory(dir=_ARCHIVES) as scratch:
        program, made = Path(scratch, "work.py"), Path(scratch, "made")
        program.write_text(_WORK, encoding="utf-8")
        environment = {
            **os.environ,
            "JAVA_HOME": str(java.home),
            "SPARK_HOME": str(spark),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_SUBMIT_OPTS": f"{QUICK} -XX:ArchiveClassesAtExit={made}",
        }
        settings = {
            "spark.master": "local[2]",
            "spark.driver.memory": "1g",
            "spark.ui.port": "0",
            "spark.sql.shuffle.partitions": "2",
        }
        chosen = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        command = [str(spark / "bin" / "spark-submit"), *chosen, str(program), scratch]
        done = subprocess.run(
            command, env=environment, cwd=scratch, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        if made.exists():
            for older in _ARCHIVES.glob("spark-*.jsa"):
                older.unlink()
            made.replace(target)
