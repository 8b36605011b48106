"""What a person may configure, and where each value came from.

A value is the default below, unless the nearest `noetl.toml` says otherwise, unless the environment does
(`NOETL_LEDGER__BUSY_TIMEOUT=30s`), unless a flag does. Every layer names its keys the same way, and a key
nobody knows is an error rather than a surprise later: a misspelt setting that is silently ignored is
worse than one that stops the command.

Nothing here looks around by itself: environment, working directory and flags are parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NewType, NoReturn

import msgspec

from noetl.errors import InvalidSetting

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "FILE_NAME",
    "Auth",
    "Bytes",
    "Env",
    "Ledger",
    "Payloads",
    "Place",
    "Seconds",
    "Server",
    "Setting",
    "Settings",
    "Snapshots",
    "Tenant",
    "Tools",
    "find_file",
    "format_duration",
    "format_size",
    "load",
    "parse_duration",
    "parse_size",
    "resolve_home",
]

FILE_NAME = "noetl.toml"
ENVIRONMENT_PREFIX = "NOETL_"
SECRET_VARIABLES = frozenset({"NOETL_WALLET__KEK"})
"""Named like settings, but keys: read where they are used, shown nowhere."""

Bytes = NewType("Bytes", int)
Seconds = NewType("Seconds", float)

_SIZE_UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_DURATION_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


# --- The sections -----------------------------------------------------------------------------------------


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """On whose behalf events are written, when a command does not say."""

    id: str = "default"
    organization: str = "default"
    project: str = "default"


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """How the log is opened."""

    busy_timeout: Seconds = Seconds(10.0)
    """How long a writer waits for another process before it gives up."""


class Snapshots(msgspec.Struct, frozen=True, kw_only=True):
    """How often state is saved, so that a replay need not start from the first event."""

    every: int = 10_000
    """Events of one stream between two snapshots."""


class Payloads(msgspec.Struct, frozen=True, kw_only=True):
    """Where the bytes of an event live."""

    url: str | None = None
    """The store they are kept in, by default a directory in the home; `options` say how it is reached."""
    options: tuple[str, ...] = ()
    inline_max: Bytes = Bytes(96 * 1024)
    """A larger payload goes to the payload store and the event keeps a reference."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where this process runs. It is recorded with what the process writes, and results are named by it."""

    env: str = "dev"
    region: str = "local"
    cell: str = "local-a"
    zone: str | None = None
    node: str | None = None
    cluster: str | None = None


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """What tasks may use, and how much of it."""

    slots: int | None = None
    """How many commands a local run works on at once; by default twice the cores, at least 4."""
    at_once: tuple[str, ...] = ()
    """How many tasks of a kind run at once, such as `http=4`."""
    shell: bool = True
    """Whether tasks of kind shell run here."""
    http_link_local: bool = False
    """Whether http tasks may ask link-local addresses and the metadata services of clouds."""
    http_in_memory: Bytes = Bytes(8 << 20)
    """A larger body goes to a file."""
    http_in_file: Bytes = Bytes(8 << 30)
    """A larger body is refused."""
    python_processes: int | None = None
    """How many python tasks run at once; by default one per core, from 2 to 8."""
    python_memory: Bytes = Bytes(4 << 30)
    """What one process of a python task may take."""
    python_time: Seconds | None = None
    """The longest that a python task may run, whatever it asks for."""
    python_cache: str | None = None
    """Where packages that tasks ask for are installed; by default in the home."""
    duckdb_extensions: str | None = None
    """Where DuckDB looks for extensions; by default in the user's home."""
    artifact_roots: tuple[str, ...] = ()
    """Directories beside its own in which an artifact task may read and write files."""


class Env(msgspec.Struct, frozen=True, kw_only=True):
    """What templates see of the environment."""

    allow: tuple[str, ...] = ()
    """The variables that `env` holds."""


Auth = Literal["none", "token"]


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """How the server listens, and whom it lets in."""

    host: str = "127.0.0.1"
    """The address to listen on; any but a loopback one needs `auth`."""
    port: int = 8082
    auth: Auth = "none"
    """Who may call: `none` for anybody on this machine, `token` for callers with a token."""
    workers: int | None = None
    """How many commands run at once; by default twice the cores, at least 4."""
    drain: Seconds = Seconds(30.0)
    """How long what is running may go on after the server was asked to stop."""
    start: Seconds = Seconds(30.0)
    """How long a start in the background may take before it counts as failed."""


class Setting(NamedTuple):
    """One value as `noetl config view` shows it."""

    name: str
    value: str | int | float | tuple[str, ...] | None
    text: str
    source: str


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Every section, and for each key that is not at its default the place that set it."""

    tenant: Tenant = Tenant()
    ledger: Ledger = Ledger()
    snapshots: Snapshots = Snapshots()
    payloads: Payloads = Payloads()
    place: Place = Place()
    tools: Tools = Tools()
    env: Env = Env()
    server: Server = Server()
    sources: dict[str, str] = {}

    def source(self, name: str) -> str:
        """Where the value of `section.key` came from: `default`, a file and line, a variable or a flag."""
        return self.sources.get(name, "default")

    def items(self) -> Iterator[Setting]:
        """Every setting in the order of the sections."""
        for section in _SECTIONS:
            struct = getattr(self, section)
            for field in msgspec.structs.fields(struct):
                name = f"{section}.{field.name}"
                value = getattr(struct, field.name)
                yield Setting(name, value, _KINDS[field.type].show(value), self.source(name))


_SECTIONS: dict[str, type[msgspec.Struct]] = {
    "tenant": Tenant,
    "ledger": Ledger,
    "snapshots": Snapshots,
    "payloads": Payloads,
    "place": Place,
    "tools": Tools,
    "env": Env,
    "server": Server,
}


# --- Humane units -----------------------------------------------------------------------------------------


def parse_size(value: object) -> Bytes:
    """Bytes from `64MiB`, `96 KiB`, `1.5GB` or a plain number of bytes."""
    number = _parse_quantity(value, "size", _SIZE_UNITS, example="64MiB")
    if number != int(number):
        _refuse_quantity(value, "size", _SIZE_UNITS, example="64MiB")
    return Bytes(int(number))


def parse_duration(value: object) -> Seconds:
    """Seconds from `30s`, `250ms`, `2h`, `1.5 m` or a plain number of seconds."""
    return Seconds(_parse_quantity(value, "duration", _DURATION_UNITS, example="30s"))


def format_size(size: int) -> str:
    """The shortest exact form in binary units, so that parsing it gives the same number back."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _SIZE_UNITS[unit] == 0:
            return f"{size // _SIZE_UNITS[unit]}{unit}"
    return f"{size}B"


def format_duration(seconds: float) -> str:
    """The largest unit that gives a whole number; seconds with a fraction where none does."""
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count = round(seconds / _DURATION_UNITS[unit])
        if count and count * _DURATION_UNITS[unit] == seconds:
            return f"{count}{unit}"
    return f"{seconds:g}s"


def _parse_quantity(value: object, kind: str, units: Mapping[str, float], *, example: str) -> float:
    import math
    import re

    number: float
    scale: float
    if isinstance(value, int | float) and not isinstance(value, bool):
        number, scale = value, 1
    elif isinstance(value, str) and (match := re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value, re.ASCII)):
        scales = {"": 1} | {unit.lower(): factor for unit, factor in units.items()}
        if (found := scales.get(match[2].lower())) is None:
            _refuse_quantity(value, kind, units, example=example)
        number, scale = (float(match[1]) if "." in match[1] else int(match[1])), found
    else:
        _refuse_quantity(value, kind, units, example=example)
    if not math.isfinite(number) or number < 0:
        _refuse_quantity(value, kind, units, example=example)
    return number * scale


def _refuse_quantity(value: object, kind: str, units: Mapping[str, float], *, example: str) -> NoReturn:
    raise InvalidSetting(
        f"{_quote(value)} is not a {kind}",
        hint=f"write a number and one of {', '.join(units)}, such as {example}",
    )


# --- Kinds of value ---------------------------------------------------------------------------------------


def _parse_text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidSetting(f"expected text, found {_quote(value)}", hint=f'write it in quotes: "{value}"')
    if not value.strip():
        raise InvalidSetting("expected text, found nothing", hint="remove the key to use its default")
    return value


def _parse_count(value: object) -> int:
    number = value
    if isinstance(value, str):
        try:
            number = int(value)
        except ValueError:
            number = None
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise InvalidSetting(f"expected a whole number of at least 1, found {_quote(value)}")
    return number


def _parse_flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise InvalidSetting(f"expected true or false, found {_quote(value)}")


def _parse_texts(value: object) -> tuple[str, ...]:
    """A list of texts; in the environment they stand behind each other, with commas between them."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if not isinstance(value, list):
        raise InvalidSetting(f"expected a list of texts, found {_quote(value)}", hint='write it as ["a", "b"]')
    return tuple(_parse_text(item) for item in value)


def _parse_auth(value: object) -> Auth:
    match value:
        case "none" | "token":
            return value
    raise InvalidSetting(f"expected none or token, found {_quote(value)}")


class _Kind(NamedTuple):
    parse: Callable[[object], object]
    show: Callable[[Any], str]


_KINDS: dict[object, _Kind] = {
    str: _Kind(_parse_text, str),
    str | None: _Kind(_parse_text, lambda value: "" if value is None else value),
    int: _Kind(_parse_count, str),
    Bytes: _Kind(parse_size, format_size),
    Seconds: _Kind(parse_duration, format_duration),
    bool: _Kind(_parse_flag, lambda value: "true" if value else "false"),
    int | None: _Kind(_parse_count, lambda value: "" if value is None else str(value)),
    Seconds | None: _Kind(parse_duration, lambda value: "" if value is None else format_duration(value)),
    Auth: _Kind(_parse_auth, str),
    tuple[str, ...]: _Kind(_parse_texts, ", ".join),
}


def _quote(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}'" if isinstance(value, str) else str(value)


# --- Loading ----------------------------------------------------------------------------------------------


class _Given(NamedTuple):
    """A value somebody set, before it is understood."""

    section: str
    key: str
    value: object
    source: str


def load(*, environ: Mapping[str, str], cwd: Path, flags: Mapping[str, object] | None = None) -> Settings:
    """Put the layers together. `flags` maps `section.key` to a value; None means the flag was not given."""
    file = find_file(cwd)
    layers = [
        *(_from_file(file) if file else ()),
        *_from_environment(environ),
        *_from_flags(flags or {}),
    ]
    values: dict[str, dict[str, object]] = {section: {} for section in _SECTIONS}
    sources: dict[str, str] = {}
    for given in layers:
        values[given.section][given.key] = _understand(given)
        sources[f"{given.section}.{given.key}"] = given.source
    sections: dict[str, Any] = {name: struct(**values[name]) for name, struct in _SECTIONS.items()}
    return Settings(**sections, sources=sources)


def find_file(cwd: Path) -> Path | None:
    """The `noetl.toml` of this directory or of the nearest one above it."""
    for directory in (cwd, *cwd.parents):
        candidate = directory / FILE_NAME
        if candidate.is_file():
            return candidate
    return None


def resolve_home(flag: str | Path | None, environ: Mapping[str, str], cwd: Path) -> Path:
    """The one directory everything is kept in.

    `--home`, else `NOETL_HOME`, else `.noetl/` beside the nearest `noetl.toml`, else `~/.noetl`. A relative
    path counts from the working directory.
    """
    from pathlib import Path

    user = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    chosen = str(flag or environ.get("NOETL_HOME") or "")
    if chosen == "~" or chosen.startswith("~/"):
        return user / chosen[2:]
    if chosen:
        return cwd / chosen
    file = find_file(cwd)
    return (file.parent if file else user) / ".noetl"


def _from_file(path: Path) -> Iterator[_Given]:
    import tomllib

    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except OSError as error:
        raise InvalidSetting(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidSetting(f"{path} is not UTF-8 text", hint=f"byte {error.start} cannot be decoded") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidSetting(f"{path} is not valid TOML: {error}") from error
    for section, table in document.items():
        place = _locate(path, text, section, None)
        if section not in _SECTIONS:
            _refuse_unknown(place, "section", section, _SECTIONS)
        if not isinstance(table, dict):
            raise InvalidSetting(
                f"{place}: '{section}' is a section, not a value", hint=f"write [{section}] above its keys"
            )
        for key, value in table.items():
            yield _Given(section, key, value, _locate(path, text, section, key))


def _locate(path: Path, text: str, section: str, key: str | None) -> str:
    """`path:line` of a key, or of its section if key is None; the path alone where the layout is unusual.

    The standard parser keeps no positions, so this reads the two ordinary layouts: a key under its
    `[section]`, and `section.key` or `section = {...}` above all sections.
    """
    import re

    name = re.escape(section)
    above = rf"\s*{name}\s*[=.]" if key is None else rf"\s*{name}\s*(=|\.\s*{re.escape(key)}\s*=)"
    under = rf"\s*[\"']?{re.escape(key or '')}[\"']?\s*[=.]"
    current = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[+\s*([^\[\]]+?)\s*\]", line):
            current = header[1].strip("\"'")
            found = key is None and current == section
        elif current:
            found = key is not None and current == section and re.match(under, line) is not None
        else:
            found = re.match(above, line) is not None
        if found:
            return f"{path}:{number}"
    return str(path)


def _from_environment(environ: Mapping[str, str]) -> Iterator[_Given]:
    for variable in sorted(environ):
        if not variable.startswith(ENVIRONMENT_PREFIX) or "__" not in variable or variable in SECRET_VARIABLES:
            continue
        section, _, key = variable.removeprefix(ENVIRONMENT_PREFIX).lower().partition("__")
        if section not in _SECTIONS:
            _refuse_unknown(variable, "section", section, _SECTIONS)
        yield _Given(section, key, environ[variable], variable)


def _from_flags(flags: Mapping[str, object]) -> Iterator[_Given]:
    for name, value in flags.items():
        if value is None:
            continue
        flag = "--" + name.replace(".", "-").replace("_", "-")
        section, _, key = name.partition(".")
        if section not in _SECTIONS:
            _refuse_unknown(flag, "section", section, _SECTIONS)
        yield _Given(section, key, value, flag)


def _understand(given: _Given) -> object:
    fields = {field.name: field.type for field in msgspec.structs.fields(_SECTIONS[given.section])}
    if given.key not in fields:
        _refuse_unknown(given.source, f"key in [{given.section}]", given.key, fields)
    try:
        return _KINDS[fields[given.key]].parse(given.value)
    except InvalidSetting as error:
        message = f"{given.source}: {given.section}.{given.key}: {error.message}"
        raise InvalidSetting(message, hint=error.hint) from None


def _refuse_unknown(place: str, what: str, name: str, known: Mapping[str, object]) -> NoReturn:
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}"
    raise InvalidSetting(f"{place}: unknown {what} '{name}'", hint=hint)
