-- The log. One column per field of the envelope; `position` is this ledger's commit order. Payload, payload_ref and
-- meta are canonical JSON text: the bytes that were hashed. It is divided by position, so that the oldest part can be
-- detached as a whole once it is archived; until somebody adds parts, everything is in the one that takes the rest.
-- Text that orders or finds something compares by code point ("C"), whatever the database's own language.
CREATE TABLE event_log (
    position            BIGINT NOT NULL,
    event_id            BIGINT NOT NULL,
    tenant_id           TEXT COLLATE "C" NOT NULL,
    organization_id     TEXT COLLATE "C" NOT NULL,
    project_id          TEXT COLLATE "C" NOT NULL,
    stream_id           TEXT COLLATE "C" NOT NULL,
    stream_version      BIGINT NOT NULL,
    aggregate_type      TEXT COLLATE "C" NOT NULL,
    aggregate_id        TEXT COLLATE "C" NOT NULL,
    event_type          TEXT COLLATE "C" NOT NULL,
    schema_name         TEXT COLLATE "C" NOT NULL,
    schema_version      BIGINT NOT NULL,
    event_time          TEXT COLLATE "C" NOT NULL,
    ingest_time         TEXT COLLATE "C" NOT NULL,
    principal           TEXT COLLATE "C" NOT NULL,
    producer            TEXT COLLATE "C" NOT NULL,
    execution_id        BIGINT,
    causation_id        BIGINT,
    correlation_id      TEXT COLLATE "C",
    idempotency_key     TEXT COLLATE "C",
    parent_event_id     BIGINT,
    prev_event_id       BIGINT,
    command_id          BIGINT,
    stage_id            BIGINT,
    frame_id            BIGINT,
    parent_execution_id BIGINT,
    node_name           TEXT COLLATE "C",
    status              TEXT COLLATE "C",
    attempt             BIGINT,
    payload             TEXT COLLATE "C" NOT NULL,
    payload_ref         TEXT COLLATE "C",
    meta                TEXT COLLATE "C" NOT NULL,
    envelope_checksum   TEXT COLLATE "C" NOT NULL,
    chain_hash          TEXT COLLATE "C",
    PRIMARY KEY (position)
) PARTITION BY RANGE (position);

CREATE TABLE event_log_rest PARTITION OF event_log DEFAULT;

-- One event per version of a stream, within a part of the log; over all of it the stream's head sees to that.
CREATE UNIQUE INDEX event_stream ON event_log (tenant_id, stream_id, stream_version, position);
-- Replay of an execution over all its streams in commit order.
CREATE INDEX event_execution ON event_log (execution_id, tenant_id, position) WHERE execution_id IS NOT NULL;
-- `--at-event`, and the lineage of commands, stages, frames and children.
CREATE INDEX event_by_id ON event_log (event_id);
CREATE INDEX event_command ON event_log (command_id) WHERE command_id IS NOT NULL;
CREATE INDEX event_stage ON event_log (stage_id) WHERE stage_id IS NOT NULL;
CREATE INDEX event_frame ON event_log (frame_id) WHERE frame_id IS NOT NULL;
CREATE INDEX event_parent_execution ON event_log (parent_execution_id) WHERE parent_execution_id IS NOT NULL;

-- Rows that are written again and again find room on their own page, and no index has to be touched.
CREATE TABLE stream_head (
    tenant_id   TEXT COLLATE "C" NOT NULL,
    stream_id   TEXT COLLATE "C" NOT NULL,
    version     BIGINT NOT NULL,
    event_id    BIGINT NOT NULL,
    count       BIGINT NOT NULL,
    chain_hash  TEXT COLLATE "C" NOT NULL,
    ingest_time TEXT COLLATE "C" NOT NULL,
    sealed      BOOLEAN NOT NULL,
    mac         TEXT COLLATE "C",
    PRIMARY KEY (tenant_id, stream_id)
) WITH (fillfactor = 70);

-- Where the whole ledger ends. Whoever appends locks this row until it has committed: so positions are given in the
-- order of commits, without gaps, and a reader never passes over a transaction that was slower than another one.
-- `last_event_id` is the last id that was given here: with it, ids are unique over all writers.
CREATE TABLE ledger_head (
    one           SMALLINT PRIMARY KEY CHECK (one = 1),
    position      BIGINT NOT NULL,
    streams       BIGINT NOT NULL,
    total         TEXT COLLATE "C" NOT NULL,
    chain_hash    TEXT COLLATE "C" NOT NULL,
    mac           TEXT COLLATE "C",
    key_id        TEXT COLLATE "C",
    last_event_id BIGINT NOT NULL
) WITH (fillfactor = 10);

INSERT INTO ledger_head VALUES (1, 0, 0, repeat('0', 64), encode(sha256('ledger'), 'hex'), NULL, NULL, 0);

-- Keys outlive the events they name, so a very late retry is still recognised: this table is never divided.
CREATE TABLE idempotency (
    tenant_id TEXT COLLATE "C" NOT NULL,
    key       TEXT COLLATE "C" NOT NULL,
    event_id  BIGINT NOT NULL,
    position  BIGINT NOT NULL,
    content   TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, key)
);

-- What has been committed and must still be told; the event itself is found by its position.
CREATE TABLE outbox (
    position   BIGINT PRIMARY KEY,
    status     TEXT COLLATE "C" NOT NULL DEFAULT 'PENDING',
    attempts   BIGINT NOT NULL DEFAULT 0,
    owner      TEXT COLLATE "C",
    due_at     BIGINT NOT NULL DEFAULT 0
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

-- What is still to be told, in order: a claim never walks over rows that only wait for the projector.
CREATE INDEX outbox_pending ON outbox (position) WHERE status = 'PENDING';

-- JSON text for those who look into it with SQL: Postgres knows no text with a NUL in it, which JSON does.
CREATE FUNCTION as_jsonb(document TEXT) RETURNS JSONB
    LANGUAGE SQL IMMUTABLE STRICT PARALLEL SAFE
    RETURN replace(document, '\u0000', '\ufffd')::JSONB;

-- The log as the language names its columns.
CREATE VIEW event WITH (security_invoker = true) AS
SELECT
    log.position,
    log.tenant_id,
    log.organization_id,
    log.project_id,
    log.execution_id,
    (said.meta ->> 'catalog_id')::BIGINT AS catalog_id,
    log.event_id,
    log.parent_event_id,
    log.parent_execution_id,
    log.prev_event_id,
    log.event_type,
    coalesce(said.meta ->> 'node_id', log.node_name) AS node_id,
    log.node_name,
    coalesce(said.meta ->> 'node_type', said.payload ->> 'kind') AS node_type,
    log.status,
    coalesce((said.meta ->> 'duration')::DOUBLE PRECISION, (said.meta ->> 'duration_ms')::DOUBLE PRECISION / 1000)
        AS duration,
    said.payload -> 'context' AS context,
    said.payload -> 'result' AS result,
    said.meta AS meta,
    said.payload -> 'error' AS error,
    said.payload AS payload,
    as_jsonb(log.payload_ref) AS payload_ref,
    said.meta ->> 'worker_id' AS worker_id,
    log.ingest_time::TIMESTAMPTZ AS created_at,
    log.event_time::TIMESTAMPTZ AS event_time,
    log.command_id,
    log.stage_id,
    log.frame_id,
    log.attempt,
    log.stream_id,
    log.stream_version,
    log.principal,
    log.producer,
    log.correlation_id,
    log.causation_id,
    log.idempotency_key
FROM event_log AS log
CROSS JOIN LATERAL (SELECT as_jsonb(log.payload) AS payload, as_jsonb(log.meta) AS meta) AS said;
