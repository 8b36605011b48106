"""The kinds of tool: which fields each has, and which it cannot run without.

One table for the validator, the schema and the reference page.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["COMMON", "KINDS", "SQL_KINDS", "STRICT_FIELDS", "Kind"]

COMMON = ("name", "kind", "input", "auth", "set", "output", "output_select", "spec")
"""Keys that every task may have."""

_SQL = ("script", "command_b64", "commands_b64", "query_b64", "query", "queries", "command", "commands", "cmd", "cmds")
SQL_KINDS = ("postgres", "duckdb", "ducklake", "snowflake")


class Kind(NamedTuple):
    """`needs` lists what must be there; of the names in one entry, one is enough, and the first is the one we name."""

    about: str
    fields: tuple[str, ...] = ()
    needs: tuple[tuple[str, ...], ...] = ()
    section: str = ""
    truths: tuple[str, ...] = ()
    """Fields that are true or false, or a template."""


KINDS: dict[str, Kind] = {
    "python": Kind(
        "Runs Python code in a process of its own.",
        ("script", "code_b64", "code", "libs", "deps"),
        (("code", "code_b64", "script"),),
        "9.1",
    ),
    "http": Kind(
        "Sends one HTTP request.",
        ("url", "endpoint", "method", "params", "headers", "json", "payload", "form", "body", "data", "timeout",
         "timeout_seconds", "verify_ssl", "verify", "follow_redirects"),
        (("url", "endpoint"),),
        "9.2",
        ("verify_ssl", "verify", "follow_redirects"),
    ),
    "postgres": Kind(
        "Runs SQL statements in one Postgres transaction.",
        (*_SQL, "autocommit", "effect_table", "pool"),
        (("auth",), ("query", *_SQL)),
        "9.3",
        ("autocommit",),
    ),
    "duckdb": Kind(
        "Runs SQL in DuckDB.",
        ("database", *_SQL, "gcs_credential"),
        (("query", *_SQL),),
        "9.4",
    ),
    "ducklake": Kind(
        "Runs SQL on a DuckLake catalog.",
        ("catalog_connection", "catalog_name", "data_path", *_SQL),
        (("catalog_connection", "auth"), ("query", *_SQL)),
        "9.5",
    ),
    "snowflake": Kind("Runs SQL in Snowflake.", _SQL, (("auth",), ("query", *_SQL)), "9.6"),
    "transfer": Kind(
        "Moves rows from a source into a table.",
        ("source", "target", "mode", "chunk_size", "partitions", "by"),
        (("source",), ("target",)),
        "9.7",
    ),
    "playbook": Kind(
        "Runs another playbook and waits for its end.",
        ("path", "version", "return_step", "timeout"),
        (("path",),),
        "9.8",
    ),
    "workbook": Kind("Runs a task of the workbook.", (), (("name",),), "9.9"),
    "noop": Kind("Does nothing; may give a result.", ("result",), (), "9.10"),
    "artifact": Kind(
        "Reads, writes or lists stored objects.",
        ("action", "result_ref", "uri", "data", "compress", "overwrite", "limit"),
        (("action",),),
        "9.11",
        ("compress", "overwrite"),
    ),
    "shell": Kind(
        "Runs shell commands.", ("cmds", "command", "env", "timeout_seconds"), (("cmds", "command"),), "9.12"
    ),
    "script": Kind("Runs a script as a batch job.", ("script", "job"), (("script",),), "9.13"),
    "container": Kind(
        "Runs a container to its end.",
        ("image", "command", "args", "env", "resources", "namespace", "service_account", "timeout_seconds",
         "backoff_limit", "restart_policy"),
        (("image",),),
        "9.14",
    ),
    "nats": Kind(
        "Uses the key-value store, object store or streams of NATS.",
        ("operation", "bucket", "key", "value", "subject", "name", "stream", "seq", "data", "headers"),
        (("operation",),),
        "9.15",
    ),
    "subscription": Kind(
        "Fetches one batch of messages.",
        ("source", "operation", "stream", "consumer", "topic", "group", "subscription", "batch", "timeout_ms", "ack"),
        (("source",),),
        "9.16",
    ),
    "spark": Kind(
        "Runs Spark SQL or DataFrame code.",
        ("inputs", "sql", "code", "expect", "partitions", "by", "options"),
        (("sql", "code"),),
        "18",
    ),
    "agent": Kind("Retired; call a playbook.", ("framework", "entrypoint"), (), "16"),
}  # fmt: skip

STRICT_FIELDS: dict[str, tuple[str, ...]] = {
    "http": ("url", "endpoint"),
    "playbook": ("path",),
    **dict.fromkeys(SQL_KINDS, tuple(name for name in _SQL if not name.endswith("_b64") and name != "script")),
}
"""Fields in which a template that cannot be parsed fails the task; `auth` is one everywhere."""
