-- The rows that folds leave behind. `row` is canonical JSON, byte for byte; `fields` has its top-level texts, numbers
-- and truth values once more, to be looked for. `root_number` is the execution's id inside `root`, or 0, because ids
-- must not be ordered as text.
CREATE TABLE projection (
    surface     TEXT COLLATE "C" NOT NULL,
    root_number BIGINT NOT NULL,
    root        TEXT COLLATE "C" NOT NULL,
    tenant_id   TEXT COLLATE "C" NOT NULL,
    row_id      TEXT COLLATE "C" NOT NULL,
    version     BIGINT NOT NULL,
    row         TEXT COLLATE "C" NOT NULL,
    fields      JSONB NOT NULL,
    -- One row per id; a root's rows of one surface; a surface's rows over all roots, page by page.
    PRIMARY KEY (surface, root_number, root, tenant_id, row_id)
) WITH (fillfactor = 80);

-- Executions by status, by path, and by who called them, page by page.
CREATE INDEX projection_execution_status
    ON projection ((fields -> 'status'), root_number, root, tenant_id, row_id) WHERE surface = 'execution';
CREATE INDEX projection_execution_path
    ON projection ((fields -> 'path'), root_number, root, tenant_id, row_id) WHERE surface = 'execution';
CREATE INDEX projection_execution_parent
    ON projection ((fields -> 'parent_execution_id'), root_number, root, tenant_id, row_id)
    WHERE surface = 'execution';

-- How far each projector has come, and when it last moved.
CREATE TABLE projection_checkpoint (
    projector TEXT COLLATE "C" PRIMARY KEY,
    position  BIGINT NOT NULL,
    moved_at  BIGINT NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE snapshot (
    tenant_id           TEXT COLLATE "C" NOT NULL,
    root                TEXT COLLATE "C" NOT NULL,
    position            BIGINT NOT NULL,
    event_count         BIGINT NOT NULL,
    last_event_id       BIGINT NOT NULL,
    last_ingest_time    TEXT COLLATE "C" NOT NULL,
    fold_version        BIGINT NOT NULL,
    registry_digest     TEXT COLLATE "C" NOT NULL,
    payload_digest_root TEXT COLLATE "C" NOT NULL,
    checksum            TEXT COLLATE "C" NOT NULL,
    created_at          TEXT COLLATE "C" NOT NULL,
    body                BYTEA NOT NULL,
    mac                 TEXT COLLATE "C",
    -- One snapshot of a root per position; the newest at or before a position.
    PRIMARY KEY (tenant_id, root, position)
);

-- Commands, stages and frames as the language names their columns.
CREATE VIEW command WITH (security_invoker = true) AS
SELECT
    (fields ->> 'command_id')::BIGINT AS command_id,
    root_number AS execution_id,
    tenant_id,
    fields ->> 'step' AS step_name,
    fields ->> 'kind' AS tool_kind,
    fields ->> 'status' AS status,
    fields ->> 'worker_id' AS worker_id,
    (fields ->> 'attempt')::BIGINT AS attempt
FROM projection
WHERE surface = 'commands';

CREATE VIEW stage WITH (security_invoker = true) AS
SELECT
    (fields ->> 'stage_id')::BIGINT AS stage_id,
    root_number AS execution_id,
    tenant_id,
    fields ->> 'step' AS step_name,
    fields ->> 'kind' AS kind,
    fields ->> 'status' AS status
FROM projection
WHERE surface = 'stages';

CREATE VIEW frame WITH (security_invoker = true) AS
SELECT
    (fields ->> 'frame_id')::BIGINT AS frame_id,
    (fields ->> 'stage_id')::BIGINT AS stage_id,
    root_number AS execution_id,
    tenant_id,
    fields ->> 'status' AS status,
    coalesce((fields ->> 'row_count')::BIGINT, 0) AS row_count,
    coalesce((fields ->> 'attempts')::BIGINT, 0) AS attempts,
    fields ->> 'owner_worker' AS owner_worker,
    (fields ->> 'lease_until')::TIMESTAMPTZ AS lease_until,
    (fields ->> 'completed_at')::TIMESTAMPTZ AS completed_at
FROM projection
WHERE surface = 'frames';
