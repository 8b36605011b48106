"""What a session is asked to be: the settings of the installation, and over them those of a playbook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from noetl.errors import InvalidSetting
from noetl.settings import Spark

__all__ = ["SessionConf", "is_local", "session_conf"]

_PREFIX = "spark."
_OURS = {"spark.master": "master", "spark.remote": "remote", "spark.ui.enabled": "ui"}


class SessionConf(msgspec.Struct, frozen=True, kw_only=True):
    """Where a session runs, and every setting of Spark's own that somebody has chosen. `ui` and `start` say how one
    is started, so one that runs already need not agree with them."""

    master: str = "local[*]"
    remote: str | None = None
    conf: dict[str, str] = {}
    ui: bool = True
    start: float = 120.0

    @property
    def is_local(self) -> bool:
        """Whether executors are threads of the driver's own JVM."""
        return self.remote is None and is_local(self.master)


def is_local(master: str) -> bool:
    """Whether this master means no cluster: `local`, `local[4]`, `local[*]`; `local-cluster[...]` is one."""
    return master == "local" or master.startswith("local[")


def session_conf(settings: Spark, asked: Mapping[str, Any] | None = None) -> SessionConf:
    """The settings, and `asked` (a playbook's `executor.spec.spark`) over them. Raises InvalidSetting."""
    merged = SessionConf(master=settings.master, remote=settings.remote, ui=settings.ui, start=settings.start)
    merged = _over(merged, _pairs(settings.conf), "spark.conf")
    return _over(merged, asked or {}, "executor.spec.spark")


def _pairs(texts: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise InvalidSetting(
                f"spark.conf: '{text}' is not name=value", hint='write it as "spark.sql.shuffle.partitions=64"'
            )
        pairs[name.strip()] = value.strip()
    return pairs


def _over(below: SessionConf, asked: Mapping[str, Any], where: str) -> SessionConf:
    """`asked` over `below`. Where a session runs is one choice: a master takes the place of a remote, or it of one."""
    named = {_OURS.get(name, name): value for name, value in asked.items()}
    if named.get("master") is not None and named.get("remote") is not None:
        raise InvalidSetting(f"{where}: master and remote are both set", hint="a session runs in one place; remove one")
    conf = dict(below.conf)
    changes: dict[str, Any] = {}
    for name, value in named.items():
        if name in ("master", "remote"):
            changes |= {"master": below.master, "remote": None} | {name: _text(where, name, value)}
        elif name == "ui":
            changes["ui"] = _flag(where, value)
        else:
            _check_name(where, name)
            conf[name] = _text(where, name, value)
    return msgspec.structs.replace(below, conf=conf, **changes)


def _check_name(where: str, name: str) -> None:
    if not name.startswith(_PREFIX) or name == _PREFIX:
        raise InvalidSetting(
            f"{where}: '{name}' is not a setting of Spark",
            hint=f"write master, remote, ui or a name such as spark.{name.lstrip('.') or 'sql.shuffle.partitions'}",
        )


def _text(where: str, name: str, value: Any) -> str:
    """A value as Spark writes it."""
    match value:
        case bool():
            return "true" if value else "false"
        case str() if value.strip():
            return value
        case int() | float():
            return str(value)
    raise InvalidSetting(f"{where}: {name} must be a text, a number or a flag, found {value!r}")


def _flag(where: str, value: Any) -> bool:
    match value:
        case bool():
            return value
        case "true" | "false":
            return bool(value == "true")
    raise InvalidSetting(f"{where}: ui must be true or false, found {value!r}")
