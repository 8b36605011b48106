"""The schema of a playbook."""

from __future__ import annotations

from collections.abc import Collection

from noetl.playbook.bounds import FRAME
from noetl.playbook.schema.parts import (
    ANY,
    BOOLEAN,
    CONDITION,
    DURATION,
    MAPPING,
    SIZE,
    TEMPLATE,
    TEXT,
    TEXTS,
    WHOLE,
    Schema,
    described,
    document,
    listed,
    obj,
    one_of,
    ref,
)
from noetl.playbook.schema.tools import tool_parts
from noetl.playbook.words import (
    DISTANCES,
    ENGINES,
    FAILURES,
    KEYCHAIN_KINDS,
    KEYCHAIN_SCOPES,
    LOOP_MODES,
    NO_MATCH,
    PLACEMENTS,
    PROFILES,
    ROUTER_MODES,
)

__all__ = ["metadata", "playbook_schema"]

_FRAME_WORDS = {
    "max_rows": "rows per claim; 1 in cursor loops and 50,000 in fan-outs",
    "max_seconds": "soft limit of a frame's time (30)",
    "max_bytes": "soft limit of a frame's size (64MiB)",
    "lease_seconds": "how long a frame stays with its holder unrenewed (120)",
    "heartbeat_seconds": "how often the holder renews the lease (30)",
    "row_concurrency": "rows processed at once in row mode (1)",
    "process": "whether the body runs once per row or once per frame (row)",
    "max_attempts": "how often a frame is run before it counts as failed (3)",
    "retry_mode": "what is run again",
    "verify_ipc": "check rows handed over in shared memory (false)",
}


def playbook_schema(kinds: Collection[str]) -> Schema:
    """The whole schema."""
    root = obj(
        {
            "apiVersion": described({"const": "noetl.io/v2"}, "version of the language"),
            "kind": described({"const": "Playbook"}, "what the document is"),
            "metadata": ref("metadata", "who the document is"),
            "executor": ref("executor", "where and how to run"),
            "keychain": listed(ref("keychain_entry"), "secrets by name, resolved on the worker"),
            "workload": described(MAPPING, "input of an execution with its defaults; the request overlays it"),
            "workbook": listed(ref("workbook_entry"), "tasks that other tasks call by name"),
            "workflow": listed(ref("step"), "the steps", minItems=1),
        },
        required=["apiVersion", "kind", "metadata", "workflow"],
        description="a pipeline",
    )
    parts = {
        "metadata": metadata(),
        "executor": _executor(),
        "keychain_entry": _keychain_entry(),
        "workbook_entry": _workbook_entry(),
        "step": _step(),
        "admit": _admit(),
        "loop": _loop(),
        "frame": _frame(),
        "reduce": _reduce(),
        "next": _next(),
        "arc": _arc(),
        "set": described(MAPPING, "assignments: keys `ctx.k`, `iter.k` or `step.k`, values literal or template"),
        **tool_parts(kinds),
    }
    return document("Playbook", root, parts)


def metadata() -> Schema:
    """Name, catalog path and what people search by."""
    return obj(
        {
            "name": described({"type": ["string", "number"], "minLength": 1}, "name", examples=["orders"]),
            "path": described(
                {"type": "string", "pattern": r"^/*[A-Za-z0-9_.\-]+(/[A-Za-z0-9_.\-]+)*/*$"},
                "catalog key; the name if left out",
                examples=["sales/orders"],
            ),
            "version": described(ANY, "informative; the catalog numbers versions itself"),
            "description": described(TEXT, "what it is for"),
            "labels": described(MAPPING, "labels"),
            "tags": described(TEXTS, "tags"),
            "exposed_in_ui": described(BOOLEAN, "show it in the console"),
            "exposes_as_mcp": described(BOOLEAN, "offer it as an MCP tool"),
            "agent": described(BOOLEAN, "mark it as an agent"),
            "capabilities": described(TEXTS, "what it can do"),
        },
        required=["name"],
        closed=False,
        description="who the document is",
    )


def _placement(description: str) -> Schema:
    return obj(
        {
            "prefer_node": described(TEXT, "the node of a worker that is waited for, for a moment"),
            "prefer_zone": described(TEXT, "the zone of a worker that is waited for, for a moment"),
            "max_distance": one_of(DISTANCES, "who is farther away leaves it to somebody nearer", default="any"),
            "labels": described(MAPPING, "labels of the workers that run it, and no others"),
        },
        description=description,
    )


def _executor() -> Schema:
    policy = obj(
        {
            "defaults": obj({"timeout_s": described(DURATION, "limit of one task attempt")}, description="defaults"),
            "results": obj({"reference_first": described(BOOLEAN, "keep no result inline")}, description="results"),
            "limits": obj({"max_payload_bytes": described(SIZE, "larger requests are refused")}, description="limits"),
        },
        description="limits and defaults of all tasks",
    )
    spec = obj(
        {
            "entry_step": described(TEXT, "first step; else `start`, else the first of the list"),
            "final_step": described(TEXT, "runs once after everything else has ended"),
            "no_next_is_error": described(BOOLEAN, "a step whose arcs all fail to match has failed", default=False),
            "policy": policy,
            "placement": _placement("where the commands of all steps want to run"),
            "spark": described(MAPPING, "`spark.*` settings for data stages"),
        },
        description="how it runs",
    )
    requires = obj(
        {
            "tools": described(TEXTS, "kinds without which the execution is refused"),
            "features": described(TEXTS, "informative"),
            "labels": described(MAPPING, "labels of the workers that run it, and no others", examples=[{"gpu": "1"}]),
        },
        description="what must be there",
    )
    return obj(
        {
            "profile": one_of(PROFILES, "where it prefers to run", default="auto"),
            "version": described(TEXT, "contract name, informative"),
            "requires": requires,
            "spec": spec,
        },
        description="where and how to run",
    )


def _keychain_entry() -> Schema:
    return obj(
        {
            "name": described(TEXT, "unique name; read as `{{ keychain.<name>.<field> }}`"),
            "kind": one_of(KEYCHAIN_KINDS, "where the secret comes from"),
            "scope": one_of(KEYCHAIN_SCOPES, "who shares the value", default="global"),
            "auto_renew": described(BOOLEAN, "renew before use when little time is left"),
            "provider": described(TEXT, "secrets: the secret manager"),
            "auth": described(ANY, "credential to ask with"),
            "map": described(MAPPING, "secrets: `{field: path}`; static: the values"),
            "endpoint": described(TEXT, "oauth2: token endpoint"),
            "method": described(TEXT, "oauth2: HTTP method"),
            "headers": described(MAPPING, "oauth2: headers"),
            "data": described(ANY, "oauth2: form"),
            "credential": described(TEXT, "credential: its name"),
            "target_audience": described(TEXT, "google_id_token: audience"),
            "service_account_secret": described(TEXT, "google_id_token: secret"),
            "service_account_credential": described(TEXT, "google_id_token: credential"),
            "token": described(TEXT, "bearer: the token"),
        },
        required=["name", "kind"],
        closed=False,
        description="a secret by name",
    )


def _workbook_entry() -> Schema:
    asserted = obj(
        {"expects": described(TEXTS, "names of inputs"), "returns": described(TEXTS, "keys of the result")},
        description="advisory: a missing name is logged",
    )
    return obj(
        {
            "name": described(TEXT, "unique name"),
            "desc": described(TEXT, "documentation"),
            "tool": ref("task"),
            "assert": asserted,
        },
        required=["name", "tool"],
        description="a task that others call by name",
    )


def _step() -> Schema:
    spec = obj(
        {
            "timeout": described(DURATION, "limit of each command, retries included", examples=["5m"]),
            "policy": obj({"admit": ref("admit")}, description="who may enter"),
            "placement": _placement("where its commands want to run; stands over the executor's"),
        },
        description="limits and admission",
    )
    tool = {
        "description": "one task, or a list that is a pipeline",
        "anyOf": [ref("task"), {"type": "array", "items": ref("task"), "minItems": 1}],
    }
    return obj(
        {
            "step": described({"type": "string", "minLength": 1}, "unique name", examples=["start"]),
            "desc": described(TEXT, "documentation"),
            "input": described(MAPPING, "merged over the input of every task"),
            "spec": spec,
            "loop": ref("loop", "repeat the step"),
            "reduce": ref("reduce", "run over groups of another step's frames"),
            "tool": tool,
            "output": ref("output"),
            "set": ref("set", "assignments after success, before arcs"),
            "next": ref("next", "where to go; a step without is a leaf"),
        },
        required=["step"],
        description="one stop of a token",
    )


def _admit() -> Schema:
    then = obj({"allow": described(BOOLEAN, "let it in")}, required=["allow"], description="the decision")
    rule = {
        "anyOf": [
            obj({"when": described(CONDITION, "condition"), "then": then}, required=["when", "then"]),
            obj({"else": obj({"then": then}, required=["then"])}, required=["else"]),
        ]
    }
    return obj(
        {"mode": one_of(("exclusive",), "the first rule that matches"), "rules": listed(rule, "tried in order")},
        required=["rules"],
        description="whether a token may enter",
    )


def _loop() -> Schema:
    cursor = obj(
        {
            "kind": described({"const": "postgres"}, "database"),
            "auth": described({"type": ["string", "object"]}, "credential"),
            "claim": described(TEXT, "one statement that takes rows and marks them as taken"),
            "options": obj(
                {"max_iterations": described(WHOLE, "rows of one slot at most")}, closed=False, description="options"
            ),
        },
        required=["kind", "auth", "claim"],
        description="a work queue to drain",
    )
    policy = obj(
        {
            "exec": one_of(PLACEMENTS, "placement wish"),
            "failure": obj({"mode": one_of(FAILURES, "what a failed iteration does")}, description="on failure"),
            "results": obj({"preserve_order": described(BOOLEAN, "accepted for clarity")}, description="results"),
        },
        description="failures and placement",
    )
    spec = obj(
        {
            "mode": one_of(LOOP_MODES, "how it runs", default="sequential"),
            "max_in_flight": described(WHOLE, "iterations or slots at once; 8 in fan-outs", default=1),
            "policy": policy,
            "frame": ref("frame", "cursor loops and fan-outs: rows taken and committed together"),
            "engine": one_of(ENGINES, "who runs it", default="auto"),
            "partitions": described(WHOLE, "fan-out: how many parts"),
            "by": described(TEXTS, "fan-out: columns to split by"),
        },
        description="how it runs",
    )
    return {
        **obj(
            {
                "in": described(ANY, "a collection, or the dataset of a fan-out", examples=["{{ items }}"]),
                "cursor": cursor,
                "iterator": described(TEXT, "name of the item", examples=["item"]),
                "spec": spec,
            },
            required=["iterator"],
            description="repeat the step",
        ),
        "oneOf": [{"required": ["in"]}, {"required": ["cursor"]}],
    }


def _frame() -> Schema:
    shapes: dict[str, Schema] = {
        "process": {"anyOf": [{"enum": ["row", "frame"]}, TEMPLATE]},
        "retry_mode": {"anyOf": [{"enum": ["whole_frame"]}, TEMPLATE]},
        "verify_ipc": {"anyOf": [BOOLEAN, TEMPLATE]},
        "max_bytes": SIZE,
        **dict.fromkeys(("max_seconds", "lease_seconds", "heartbeat_seconds"), DURATION),
    }
    fields = {name: described(shapes.get(name, WHOLE), _FRAME_WORDS[name]) for name in FRAME}
    return obj(fields, description="rows taken and committed together")


def _reduce() -> Schema:
    return obj(
        {
            "from": described(TEXT, "step whose frames are read"),
            "by": described(TEXTS, "columns that make a group; one group of all if left out"),
        },
        required=["from"],
        description="run over groups of another step's frames",
    )


def _next() -> Schema:
    spec = obj(
        {
            "mode": one_of(ROUTER_MODES, "take the first arc that matches, or all", default="exclusive"),
            "on_no_match": one_of(NO_MATCH, "what an end without a match means", default="complete"),
        },
        description="how arcs are chosen",
    )
    return obj({"spec": spec, "arcs": listed(ref("arc"), "ways on")}, required=["arcs"], description="where to go")


def _arc() -> Schema:
    return obj(
        {
            "step": described(TEXT, "target"),
            "when": described(CONDITION, "condition; without one the arc matches success", examples=["{{ ok }}"]),
            "set": ref("set", "assignments, applied when the arc is taken"),
        },
        required=["step"],
        description="a way to another step",
    )
