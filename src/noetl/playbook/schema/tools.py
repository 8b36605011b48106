"""The schema of a task: what all kinds share, and what each adds."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from noetl.playbook.kinds import KINDS
from noetl.playbook.schema.parts import (
    ANY,
    BOOLEAN,
    CONDITION,
    DURATION,
    MAPPING,
    NUMBER,
    SIZE,
    TEMPLATE,
    TEXT,
    TEXTS,
    WHOLE,
    Schema,
    described,
    listed,
    obj,
    one_of,
    ref,
)
from noetl.playbook.validate.stages import (
    ON_FAIL,
    SOURCE_TYPES,
    TARGET_TYPES,
    TRANSFER_MODES,
    WRITE_MODES,
)
from noetl.playbook.words import ACTIONS, BACKOFFS, SCOPES, SCRIPT_SOURCES, SOURCES, STORES

__all__ = ["FIELDS", "OWN_FIELDS", "tool_parts"]

_FLAG: Schema = {"anyOf": [BOOLEAN, TEMPLATE]}
_SQL = "SQL text; several statements run in order"

FIELDS: dict[str, Schema] = {
    "script": described(ref("script"), "code that is loaded from elsewhere"),
    "code": described(TEXT, "source text", examples=["result = {'ok': True}"]),
    "code_b64": described(TEXT, "source text in base64"),
    "libs": described(MAPPING, "modules to import first: `{alias: module}`"),
    "deps": described(MAPPING, "an environment of its own: `packages`, `venv_path`, `sys_path`"),
    "url": described(TEXT, "address", examples=["https://example.org/{{ id }}"]),
    "endpoint": described(TEXT, "the same as `url`"),
    "method": described(TEXT, "HTTP method", default="GET", examples=["GET", "POST", "PUT", "DELETE"]),
    "params": described({"type": ["object", "string"]}, "query parameters; a list repeats its key"),
    "headers": described({"type": ["object", "string"]}, "headers"),
    "json": described(ANY, "body as JSON"),
    "payload": described(ANY, "body as JSON"),
    "form": described(ANY, "body, URL-encoded"),
    "body": described(ANY, "body: text as it is, a mapping as JSON"),
    "data": described(ANY, "body or query, by method and content type"),
    "timeout": described(DURATION, "limit of one attempt", examples=["30s"]),
    "timeout_seconds": described(DURATION, "limit of one attempt"),
    "verify_ssl": described(_FLAG, "check the server's certificate", default=True),
    "verify": described(_FLAG, "the same as `verify_ssl`", default=True),
    "follow_redirects": described(_FLAG, "follow redirects", default=False),
    "query": described(TEXTS, _SQL, examples=["SELECT 1"]),
    "queries": described(TEXTS, _SQL),
    "command": described(TEXTS, "a command, or SQL text"),
    "commands": described(TEXTS, _SQL),
    "cmd": described(TEXTS, _SQL),
    "cmds": described(TEXTS, "commands, in order"),
    "command_b64": described(TEXTS, "SQL text in base64"),
    "commands_b64": described(TEXTS, "SQL texts in base64"),
    "query_b64": described(TEXTS, "SQL text in base64"),
    "autocommit": described(_FLAG, "commit each statement by itself", default=False),
    "effect_table": described(TEXT, "table that records the effect key in the same transaction"),
    "pool": described({"type": ["boolean", "object", "string"]}, "connection pool: true, false or its settings"),
    "database": described(TEXT, "`:memory:` or a file", examples=[":memory:"]),
    "gcs_credential": described(TEXT, "credential for Google Cloud Storage"),
    "catalog_connection": described(TEXT, "the catalog's database"),
    "catalog_name": described(TEXT, "name of the catalog"),
    "data_path": described(TEXT, "where the data lies"),
    "source": described(ANY, "where rows or messages come from"),
    "target": described(ANY, "where rows go"),
    "mode": described(ANY, "how rows are written"),
    "chunk_size": described(WHOLE, "rows written at once", default=1000),
    "partitions": described(WHOLE, "how many parts to split the input into"),
    "by": described(TEXTS, "columns to split the input by"),
    "path": described(TEXT, "catalog path of the playbook", examples=["guide/hello"]),
    "version": described({"type": ["integer", "string"]}, "catalog version; the latest if left out"),
    "return_step": described(TEXT, "step whose result is the call's"),
    "name": described(TEXT, "entry of the workbook"),
    "result": described(ANY, "value to give back"),
    "action": one_of(("get", "put", "list"), "read, write or list"),
    "result_ref": described(ANY, "reference of a result"),
    "uri": described(TEXT, "address: `noetl://`, `s3://`, `gs://`, `az://` or `file://`"),
    "compress": described(_FLAG, "compress what is written", default=True),
    "overwrite": described(_FLAG, "replace what is there", default=True),
    "limit": described(ANY, "how many objects are listed at most", default=1000),
    "env": described({"type": ["object", "array"]}, "environment variables"),
    "job": described(MAPPING, "settings of the batch job"),
    "image": described(TEXT, "container image", examples=["alpine:3.20"]),
    "args": described(TEXTS, "arguments"),
    "resources": described(MAPPING, "CPU and memory"),
    "namespace": described(TEXT, "namespace to run in"),
    "service_account": described(TEXT, "account to run as"),
    "backoff_limit": described({"type": ["integer", "string"]}, "restarts allowed"),
    "restart_policy": described(TEXT, "when to restart"),
    "operation": described(TEXT, "what to do", examples=["kv_get", "kv_put", "js_publish", "poll"]),
    "bucket": described(TEXT, "bucket"),
    "key": described(TEXT, "key"),
    "value": described(ANY, "value"),
    "subject": described(TEXT, "subject to publish on"),
    "stream": described(TEXT, "stream"),
    "seq": described({"type": ["integer", "string"]}, "sequence number"),
    "consumer": described(TEXT, "durable consumer"),
    "topic": described(TEXT, "topic"),
    "group": described(TEXT, "consumer group"),
    "subscription": described(TEXT, "subscription"),
    "batch": described(WHOLE, "messages at most"),
    "timeout_ms": described(WHOLE, "how long to wait, in milliseconds"),
    "ack": one_of(("on_success", "auto", "manual"), "when messages are acknowledged"),
    "inputs": described(MAPPING, "views and DataFrame arguments by name"),
    "sql": described(TEXT, "Spark SQL over the inputs", examples=["SELECT count(*) AS n FROM orders"]),
    "expect": described(ANY, "checks on the result"),
    "options": described(MAPPING, "options of the session"),
    "framework": described(TEXT, "retired"),
    "entrypoint": described(TEXT, "retired"),
}

_FILES = ("path", "csv", "json", "parquet", "arrow", "orc", "text", "resource")
_SIDE = {"auth": described(ANY, "credential"), "query": described(TEXT, "SQL text")}
OWN_FIELDS: dict[str, dict[str, Schema]] = {
    "transfer": {
        "source": obj(
            {
                "type": one_of(SOURCE_TYPES, "kind of source"), **_SIDE,
                "url": FIELDS["url"], "method": FIELDS["method"], "headers": FIELDS["headers"],
                "params": FIELDS["params"],
                "data_path": described(TEXT, "path of the rows inside the answer"),
                "next": described(TEXT, "where an answer has the address of the next page"),
                "cursor": described(ANY, "where an answer has a mark, and the parameter that takes it"),
                "page": described(ANY, "the parameter that counts pages"),
                "max_pages": described(WHOLE, "pages at most"),
                "table": described(TEXT, "a whole table instead of a query"),
                "database": described(TEXT, "file of DuckDB; by default the execution's own"),
                "partition_column": described(TEXT, "column of whole numbers by which a query is read in parts"),
                "partitions": described(WHOLE, "parts that a query is read in"),
                **{form: described(ANY, f"{form} to read, of type files") for form in _FILES},
                "on_missing": one_of(("fail", "skip"), "what to do about files that are not there"),
                "on_drift": one_of(("fail", "skip"), "what to do about files with other columns"),
                "on_error": one_of(("fail", "skip"), "what to do about files that cannot be read"),
                "rows": described(ANY, "a table or list of a step, of type result"),
                "ref": described(ANY, "a reference to a result, of type result"),
            },
            required=["type"], closed=False, description="where rows come from",
        ),
        "target": obj(
            {
                "type": one_of(TARGET_TYPES, "kind of target"), **_SIDE,
                "table": described(TEXT, "table"),
                "database": described(TEXT, "file of DuckDB; by default the execution's own"),
                "path": described(TEXT, "directory, of type files"),
                "format": one_of(("parquet", "csv", "jsonl"), "form of the files", default="parquet"),
                "effect_table": described(TEXT, "table that keeps the keys of transfers that were applied"),
                "mapping": described(MAPPING, "`{target_column: source_field}`"),
            },
            required=["type"], closed=False, description="where rows go",
        ),
        "mode": one_of(TRANSFER_MODES, "how rows are written", default="append"),
    },
    "subscription": {"source": one_of(("nats", "kafka", "pubsub"), "where messages come from")},
    "nats": {
        "data": described(ANY, "content"), "headers": described(MAPPING, "headers"),
        "name": described(TEXT, "name of the task, or of the object"),
    },
    "artifact": {"data": described(ANY, "content to write")},
    "spark": {
        "inputs": {
            "type": "object",
            "description": "views and DataFrame arguments by name",
            "additionalProperties": {
                "anyOf": [
                    TEXT,
                    obj({name: described(ANY, f"{name} to read") for name in SOURCES}, closed=False),
                ]
            },
        },
        "expect": listed(
            obj(
                {
                    "name": described(TEXT, "name of the check"),
                    "check": described(TEXT, "condition on a row, in SQL", examples=["total >= 0"]),
                    "on_fail": one_of(ON_FAIL, "what a failing row does"),
                },
                required=["name", "check"],
            ),
            "checks on the result; counts are recorded",
        ),
    },
}  # fmt: skip


def _rule() -> Schema:
    then = ref("then")
    return {
        "type": "object",
        "description": "what to do after an attempt; the first rule that matches is taken",
        "anyOf": [
            obj({"when": described(CONDITION, "condition on `output`"), "then": then}, required=["when", "then"]),
            obj({"else": obj({"then": then}, required=["then"], description="always matches")}, required=["else"]),
        ],
    }


def _then() -> Schema:
    return obj(
        {
            "do": one_of(ACTIONS, "what happens"),
            "attempts": described(WHOLE, "executions in all, the first included", default=3),
            "backoff": one_of(BACKOFFS, "how the delay grows", default="none"),
            "delay": described(NUMBER, "seconds before a retry", examples=[0.5]),
            "to": described(TEXT, "task to jump to, or `previous`"),
            "set": ref("set", "assignments, applied at once"),
        },
        required=["do"],
    )


def _output() -> Schema:
    return obj(
        {
            "store": obj({"kind": one_of(STORES, "where", default="auto")}, description="where the result is kept"),
            "inline_max_bytes": described(SIZE, "larger results leave the event; 0 for all"),
            "output_select": listed(TEXT, "fields that stay readable inline"),
            "select": listed(
                {"anyOf": [TEXT, obj({"path": described(TEXT, "path"), "as": described(TEXT, "name")})]},
                "fields that stay readable inline",
            ),
            "scope": one_of(SCOPES, "how long the object lives", default="execution"),
            "as": described(TEXT, "name the object is stored under"),
            "accumulate": described(BOOLEAN, "in a loop, append every result to one object"),
            "format": described(TEXT, "spark: file format", examples=["parquet"]),
            "mode": one_of(WRITE_MODES, "spark: what to do with what is there"),
            "partition_by": described(TEXTS, "spark: columns to partition by"),
            "resource": described(TEXT, "spark: name to register the dataset under"),
            "path": described(TEXT, "spark: directory for files"),
            "table": described(TEXT, "spark: table of Postgres"),
            "key": described(TEXTS, "spark: columns that tell rows apart, for upsert"),
        },
        closed=False,
        description="how a result is stored",
    )


def _script() -> Schema:
    source = obj(
        {
            "type": one_of(SCRIPT_SOURCES, "where the text is"),
            "code": described(TEXT, "the text itself"),
            "path": described(TEXT, "path of the file"),
            "auth": described(ANY, "credential"),
            "region": described(TEXT, "region"),
            "endpoint": described(TEXT, "address"),
            "method": FIELDS["method"],
            "headers": FIELDS["headers"],
            "timeout": FIELDS["timeout"],
        },
        description="where it is loaded from",
    )
    return obj({"uri": described(TEXT, "address"), "source": source}, closed=False)


def _task(kinds: Collection[str]) -> Schema:
    names = [*(kind for kind in KINDS if kind != "agent"), *kinds]
    spec = obj(
        {
            "policy": obj({"rules": listed(ref("rule"), "tried in order")}, required=["rules"], description="rules"),
            "timeout": described(DURATION, "limit of one attempt", examples=["30s"]),
            "side_effecting": described(BOOLEAN, "whether running it twice can do harm"),
        },
        description="how the task is run",
    )
    select: Schema = {"anyOf": [{"type": "array"}, MAPPING]}
    base = {
        "name": described(TEXT, "unique in its pipeline"),
        "kind": one_of(names, "what the task does"),
        "input": described(MAPPING, "values for the task; visible as bare names and as `input.<k>`"),
        "auth": described({"type": ["string", "object"]}, "credential"),
        "set": ref("set", "assignments, applied when the task is left; a bare key names a value for later tasks"),
        "output": ref("output"),
        "output_select": described(select, "short for parts of `output`"),
        "spec": spec,
    }
    cases: list[Any] = [
        {
            "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
            "then": {"properties": {name: _field(kind, name) for name in known.fields}, "description": known.about},
        }
        for kind, known in KINDS.items()
        if kind != "agent" and known.fields
    ]
    return {**obj(base, required=["kind"], closed=False, description="one tool call"), "allOf": cases}


def _field(kind: str, name: str) -> Schema:
    return OWN_FIELDS.get(kind, {}).get(name) or FIELDS[name]


def tool_parts(kinds: Collection[str]) -> dict[str, Schema]:
    """The named parts that tasks are made of."""
    return {"task": _task(kinds), "rule": _rule(), "then": _then(), "output": _output(), "script": _script()}
