-- The rows that folds leave behind. `row` is canonical JSON and the only place where its fields are;
-- `root_number` is the execution's id inside `root`, or 0, because ids must not be ordered as text.
CREATE TABLE projection (
    surface     TEXT NOT NULL,
    root_number INTEGER NOT NULL,
    root        TEXT NOT NULL,
    tenant_id   TEXT NOT NULL,
    row_id      TEXT NOT NULL,
    version     INTEGER NOT NULL,
    row         TEXT NOT NULL
) STRICT;

-- One row per id; a root's rows of one surface; a surface's rows over all roots, page by page.
CREATE UNIQUE INDEX projection_row ON projection (surface, root_number, root, tenant_id, row_id);
-- Executions by status and by path, page by page.
CREATE INDEX projection_execution_status
    ON projection (json_extract(row, '$.status'), root_number, root, tenant_id, row_id)
    WHERE surface = 'execution';
CREATE INDEX projection_execution_path
    ON projection (json_extract(row, '$.path'), root_number, root, tenant_id, row_id)
    WHERE surface = 'execution';

-- How far each projector has come, and when it last moved.
CREATE TABLE projection_checkpoint (
    projector TEXT PRIMARY KEY,
    position  INTEGER NOT NULL,
    moved_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE snapshot (
    tenant_id           TEXT NOT NULL,
    root                TEXT NOT NULL,
    position            INTEGER NOT NULL,
    event_count         INTEGER NOT NULL,
    last_event_id       INTEGER NOT NULL,
    last_ingest_time    TEXT NOT NULL,
    fold_version        INTEGER NOT NULL,
    registry_digest     TEXT NOT NULL,
    payload_digest_root TEXT NOT NULL,
    checksum            TEXT NOT NULL,
    created_at          TEXT NOT NULL,
    body                BLOB NOT NULL,
    mac                 TEXT
) STRICT;

-- One snapshot of a root per position; the newest at or before a position.
CREATE UNIQUE INDEX snapshot_position ON snapshot (tenant_id, root, position);
