"""The settings that a session of our own starts with, where nobody has chosen others."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from noetl.data.session.conf import SessionConf

__all__ = ["launch_settings", "machine_memory", "properties"]

_LOOPBACK = "127.0.0.1"
_GIB = 1 << 30
_LEAST_MEMORY, _MOST_MEMORY = 1 * _GIB, 8 * _GIB
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_ALWAYS = {
    "spark.app.name": "noetl",
    "spark.ui.port": "0",  # any that is free: a second session must not fail over a port nobody asked for
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
    "spark.python.task.killTimeout": "200ms",  # how long a cancelled task lets its Python go on
}


def launch_settings(conf: SessionConf, directory: Path, logging: Path, scratch: Path) -> dict[str, str]:
    """All settings of a session that this process starts; `directory` is Spark's part of the home."""
    chosen = {"spark.master": conf.master, "spark.ui.enabled": "true" if conf.ui else "false", **conf.conf}
    settings = dict(_ALWAYS)
    if conf.is_local:
        settings |= {
            "spark.driver.memory": f"{driver_memory() >> 20}m",
            "spark.local.dir": str(scratch),
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
        }
    if stays_here(conf.master):
        settings |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    settings |= chosen
    options = settings.get("spark.driver.extraJavaOptions", "")
    if "log4j" not in options:
        options = f"-Dlog4j2.configurationFile={_quoted(logging)} {options}"
    settings["spark.driver.extraJavaOptions"] = f"-Dderby.system.home={_quoted(scratch)} {options}".strip()
    return settings


def stays_here(master: str) -> bool:
    """Whether all of Spark is on this machine, so that nothing needs to listen beyond it."""
    return re.match(r"local\b|spark://(127\.[\d.]+|localhost|\[::1\])(:\d+)?$", master) is not None


def driver_memory() -> int:
    """A quarter of the machine's memory: enough to work in, with room for Python beside it and for all that runs."""
    return min(max(machine_memory() // 4, _LEAST_MEMORY), _MOST_MEMORY)


def machine_memory() -> int:
    """The memory that this process may use: the machine's, or its container's where that is less."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in _CGROUP_LIMITS:
        try:
            text = Path(name).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdecimal():
            limits.append(int(text))
    return min(limits)


def properties(settings: Mapping[str, str]) -> str:
    """The settings as a file that Java reads."""
    return "".join(f"{_escaped(name, ' :=#!')}={_escaped(value, '')}\n" for name, value in sorted(settings.items()))


def _escaped(text: str, special: str) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    text = "".join(f"\\{letter}" if letter in special else letter for letter in text)
    return f"\\{text}" if text.startswith(" ") else text


def _quoted(path: Path) -> str:
    """A path among Java's options, which are split at spaces."""
    text = str(path)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' if re.search(r"[\s\"'\\]", text) else text
