"""What a person may configure, and where each value came from.

A value is the default below, unless the nearest `noetl.toml` says otherwise, unless the environment does
(`NOETL_LEDGER__BUSY_TIMEOUT=30s`), unless a flag does. Every layer names its keys the same way, and a key
nobody knows is an error rather than a surprise later: a misspelt setting that is silently ignored is
worse than one that stops the command.

Nothing here looks around by itself: environment, working directory and flags are parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import msgspec

from noetl.errors import InvalidSetting
from noetl.history import ArchiveSettings, LakeSettings, Prices, RetentionSettings, Snapshots
from noetl.kinds import KINDS, Amount, Auth, Codec, DatabaseUrl, LedgerMode, StagesKept
from noetl.units import Bytes, Seconds, format_duration, format_size, parse_duration, parse_size

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "DATABASE_VARIABLE",
    "FILE_NAME",
    "PRIVATE_VARIABLES",
    "SERVICE_TOKEN_VARIABLE",
    "Amount",
    "Auth",
    "Bytes",
    "Codec",
    "DatabaseUrl",
    "Effects",
    "Env",
    "LakeSettings",
    "Ledger",
    "LedgerMode",
    "Nats",
    "Observe",
    "Payloads",
    "Place",
    "Prices",
    "Projector",
    "Quotas",
    "Seconds",
    "Server",
    "Setting",
    "Settings",
    "Snapshots",
    "Spark",
    "StagesKept",
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
SECRET_VARIABLES = frozenset({"NOETL_WALLET__KEK", "NOETL_WALLET__KEK_FILE"})
"""Named like settings, but keys, or where one is: read where they are used, shown nowhere."""
DATABASE_VARIABLE = "NOETL_DATABASE"
"""A shorter name for `NOETL_LEDGER__URL`."""
SERVICE_TOKEN_VARIABLE = "NOETL_INTERNAL_API_TOKEN"  # noqa: S105 - its name
"""What an installation's own parts show to its servers; a key too."""
PRIVATE_VARIABLES = SECRET_VARIABLES | {
    DATABASE_VARIABLE, "NOETL_LEDGER__URL", SERVICE_TOKEN_VARIABLE, "NOETL_LEDGER_KEY", "NOETL_PAYLOAD_KEY",
    "NOETL_ARCHIVE_KEY",
}  # fmt: skip
"""What no template may read: they are keys, or have a password in them."""


# --- The sections -----------------------------------------------------------------------------------------


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """On whose behalf events are written, when a command does not say."""

    id: str = "default"
    organization: str = "default"
    project: str = "default"


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """How the log is opened."""

    url: DatabaseUrl | None = None
    """The Postgres database that it is kept in, by default a SQLite file in the home."""
    mode: LedgerMode = "direct"
    """`direct`: an append is a transaction of that database; `wal`: a message of JetStream, copied there later."""
    connections: int = 10
    """How many connections to Postgres a process has at most, beside one that appends and one that listens."""
    busy_timeout: Seconds = Seconds(10.0)
    """How long a writer waits for another process, or for Postgres to be back, before it gives up."""


class Payloads(msgspec.Struct, frozen=True, kw_only=True):
    """Where the bytes of an event live."""

    url: str | None = None
    """The store they are kept in, by default a directory in the home; `options` say how it is reached."""
    options: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    """Where the store kinds that a playbook names lead, such as `s3=s3://bucket/prefix`."""
    memory: Bytes = Bytes(64 << 20)
    """What a process keeps of the payloads it has read; 0 for nothing, here and below."""
    shared_memory: Bytes = Bytes(1 << 30)
    """What all processes of a machine keep of tables in shared memory."""
    disk_cache: Bytes = Bytes(8 << 30)
    """What a machine keeps on its disk of payloads whose store is elsewhere."""
    verify_ipc: bool = False
    """Whether the content of a table in shared memory is checked when it is opened, not its header only."""
    encrypt: bool = False
    """Whether payloads are stored encrypted, with a key of the wallet; there is no disk cache then."""
    replica: str | None = None
    """A copy of the store with the same keys, from which `noetl repair` may restore; `replica_options` are for it."""
    replica_options: tuple[str, ...] = ()
    step_scope: Seconds = Seconds(24 * 3600.0)
    """How long a result of `scope: step` is kept after its execution has ended."""
    grace: Seconds = Seconds(24 * 3600.0)
    """How old an object is at least before `noetl gc` may delete it."""


class Effects(msgspec.Struct, frozen=True, kw_only=True):
    """How a side effect that happened is kept from happening again."""

    barrier: bool = False
    """Whether a worker makes the outcome of a side effect durable before it reports it."""


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


class Spark(msgspec.Struct, frozen=True, kw_only=True):
    """The Spark session of data stages; `executor.spec.spark` of a playbook goes before it."""

    master: str = "local[*]"
    """Where Spark runs: `local[4]`, `spark://host:7077`, `yarn`, `k8s://https://host:443`."""
    remote: str | None = None
    """A Spark Connect server to use instead, such as `sc://host:15002`."""
    conf: tuple[str, ...] = ()
    """Settings of Spark's own, such as `spark.sql.shuffle.partitions=64`."""
    ui: bool = True
    """Whether Spark's own pages are served while a session runs."""
    start: Seconds = Seconds(120.0)
    """How long Spark may take to start."""


class Env(msgspec.Struct, frozen=True, kw_only=True):
    """What templates see of the environment."""

    allow: tuple[str, ...] = ()
    """The variables that `env` holds."""


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """How the server listens, and whom it lets in."""

    host: str = "127.0.0.1"
    """The address to listen on; any but a loopback one needs `auth`."""
    port: int = 8082
    auth: Auth = "none"
    """Who may call: `none` for anybody on this machine, `token` for callers with a token."""
    workers: int | None = None
    """How many commands run at once; by default twice the cores, at least 4. With 0 `noetl worker` runs them all."""
    lease: Seconds = Seconds(120.0)
    """How long a command stays with a worker that is not heard of."""
    stages: StagesKept = "auto"
    """Who runs data stages and tasks for Spark where `noetl worker` runs commands: `workers` of the pool spark, the
    `server`, or `auto` for workers if there are some when a step begins."""
    drain: Seconds = Seconds(30.0)
    """How long what is running may go on after the server was asked to stop."""
    start: Seconds = Seconds(30.0)
    """How long a start in the background may take before it counts as failed."""
    retention: Seconds | None = None
    """How long what tasks have printed is kept after their last line; without it, for ever."""


class Nats(msgspec.Struct, frozen=True, kw_only=True):
    """The NATS JetStream that events are published to."""

    url: str | None = None
    """Its servers, such as `nats://user:password@host:4222`; without it nothing is published."""
    credentials: str | None = None
    """A file with the JWT and the seed of a user."""
    streams: int = 1
    """How many streams hold the events; a power of two up to 256."""
    replicas: int = 1
    """How many servers of a cluster keep each stream."""
    keep: Seconds = Seconds(7 * 24 * 3600.0)
    """How long events stay in their streams."""
    codec: Codec = "json"
    """How an event is written into a message: `json` or `feather`."""
    patience: Seconds = Seconds(5.0)
    """How long a call waits for an answer."""
    monitor: str | None = None
    """The monitoring pages of its servers, such as `http://127.0.0.1:8222`; needed for `ledger.mode = "wal"`."""
    wal_unsafe: bool = False
    """Whether a log may be kept in a NATS that acknowledges what is not yet on its disk."""


class Projector(msgspec.Struct, frozen=True, kw_only=True):
    """How `noetl projector` follows the streams."""

    shard: str | None = None
    """Its share: `0/4` is the first of four, `host/4` the one that the machine's name ends with."""
    batch: int = 500
    """How many events it takes at a time."""
    settle: Seconds = Seconds(30.0)
    """How long NATS waits for it before an event is delivered again."""
    walk: Seconds = Seconds(30.0)
    """How often at least it compares with the ledger itself."""


class Observe(msgspec.Struct, frozen=True, kw_only=True):
    """Where others can follow what is going on."""

    otlp: str | None = None
    """A collector of OpenTelemetry that traces are sent to, such as `http://localhost:4318`; without it nowhere."""


class Quotas(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant may have on the servers of an installation; what is not set has no limit."""

    running: int | None = None
    """Executions that run at once."""
    starts_per_minute: int | None = None
    events_per_minute: int | None = None
    """Events that are delivered in batches."""
    tokens: int | None = None
    """Tokens that are in force."""
    tenants: tuple[str, ...] = ()
    """Other limits of single tenants, such as `acme.running=50` or `acme.tokens=none`."""


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
    archive: ArchiveSettings = ArchiveSettings()
    effects: Effects = Effects()
    retention: RetentionSettings = RetentionSettings()
    place: Place = Place()
    tools: Tools = Tools()
    spark: Spark = Spark()
    env: Env = Env()
    server: Server = Server()
    nats: Nats = Nats()
    projector: Projector = Projector()
    observe: Observe = Observe()
    quotas: Quotas = Quotas()
    lake: LakeSettings = LakeSettings()
    prices: Prices = Prices()
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
                value, kind = getattr(struct, field.name), KINDS[field.type]
                text = kind.show(value)
                yield Setting(name, (text or None) if kind.private else value, text, self.source(name))


_SECTIONS: dict[str, type[msgspec.Struct]] = {
    "tenant": Tenant,
    "ledger": Ledger,
    "snapshots": Snapshots,
    "payloads": Payloads,
    "archive": ArchiveSettings,
    "effects": Effects,
    "retention": RetentionSettings,
    "place": Place,
    "tools": Tools,
    "spark": Spark,
    "env": Env,
    "server": Server,
    "nats": Nats,
    "projector": Projector,
    "observe": Observe,
    "quotas": Quotas,
    "lake": LakeSettings,
    "prices": Prices,
}


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
        if variable == DATABASE_VARIABLE and environ[variable]:
            yield _Given("ledger", "url", environ[variable], variable)
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
        return KINDS[fields[given.key]].parse(given.value)
    except InvalidSetting as error:
        message = f"{given.source}: {given.section}.{given.key}: {error.message}"
        raise InvalidSetting(message, hint=error.hint) from None


def _refuse_unknown(place: str, what: str, name: str, known: Mapping[str, object]) -> NoReturn:
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}"
    raise InvalidSetting(f"{place}: unknown {what} '{name}'", hint=hint)
