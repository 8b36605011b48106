"""The closed lists of the language: keys, choices and names with a meaning."""

from __future__ import annotations

__all__ = [
    "ACTIONS", "API_VERSIONS", "ARC_KEYS", "BACKOFFS", "BANNED", "DISTANCES", "DOCUMENT_KINDS", "ENGINES",
    "FAILURES", "KEYCHAIN_KINDS", "KEYCHAIN_SCOPES", "LOOP_MODES", "NO_MATCH", "OUTPUT_KEYS", "PLACEMENTS",
    "PROFILES", "RESERVED", "ROOT_KEYS", "ROUTER_MODES", "SCOPES", "SCRIPT_SOURCES", "SOURCES", "STEP_KEYS", "STORES",
    "is_readable",
]  # fmt: skip

DOCUMENT_KINDS = ("Playbook", "Subscription")
API_VERSIONS = {"Playbook": "noetl.io/v2", "Subscription": "noetl.io/v1"}
ROOT_KEYS = ("apiVersion", "kind", "metadata", "executor", "keychain", "workload", "workbook", "workflow")
PROFILES = ("local", "distributed", "auto")
DISTANCES = ("node", "zone", "region", "any")

STEP_KEYS = ("step", "desc", "input", "spec", "loop", "reduce", "tool", "output", "set", "next")
ARC_KEYS = ("step", "when", "set")
ROUTER_MODES = ("exclusive", "inclusive")
NO_MATCH = ("complete", "quiet")

LOOP_MODES = ("sequential", "parallel", "cursor", "fanout")
PLACEMENTS = ("local", "distributed")
FAILURES = ("fail_fast", "fail_at_end", "best_effort")
ENGINES = ("auto", "spark", "worker")
SOURCES = (
    "path", "table", "postgres", "duckdb", "http", "csv", "json", "parquet", "orc", "arrow", "text", "rows", "resource",
    "ref",
)  # fmt: skip
"""What the mapping of a dataset may name: exactly one of these, with its options beside it."""

ACTIONS = ("continue", "retry", "jump", "break", "fail")
BACKOFFS = ("none", "linear", "exponential")
SCRIPT_SOURCES = ("inline", "file", "gcs", "s3", "http", "https")

STORES = ("auto", "memory", "kv", "disk", "s3", "gcs", "db", "duckdb", "eventlog")
SCOPES = ("step", "execution", "workflow", "permanent")
OUTPUT_KEYS = ("store", "inline_max_bytes", "output_select", "select", "scope", "as", "accumulate")

KEYCHAIN_KINDS = ("secrets", "oauth2", "credential", "google_id_token", "bearer", "static")
KEYCHAIN_SCOPES = ("local", "shared", "catalog", "global")

BANNED = {
    "vars": "workload or set",
    "when": "arcs[].when or admit",
    "case": "next.arcs",
    "type": "tool.kind",
    "args": "input",
    "set_ctx": "set",
    "set_iter": "set",
    "result": "output",
    "outcome": "output",
    "expr": "when",
    "eval": "spec.policy.rules",
}
"""Keys of other dialects, and where their meaning lives here."""

_JINJA_WORDS = frozenset(
    "and else false False if in is none None not or true True".split()  # noqa: SIM905  # a list of words
)
RESERVED = _JINJA_WORDS | frozenset(
    (
        "workload", "ctx", "iter", "step", "results", "_prev", "_task", "_attempt", "output", "event", "result",
        "response", "error", "loop", "loop_index", "frame", "__frame_max_rows", "__frame_policy", "__worker_slot_id",
        "execution_id", "catalog_id", "job", "parent_execution_id", "server_url", "env", "keychain", "input",
    )
)  # fmt: skip
"""Names that mean something in every template, or nothing that a template could read."""


def is_readable(name: str) -> bool:
    """Whether `{{ name }}` reads what was given that name."""
    return name.isidentifier() and name not in RESERVED
