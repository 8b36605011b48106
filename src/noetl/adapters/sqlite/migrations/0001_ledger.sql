-- The log. One column per field of the envelope, in the order the design lists them; `position` is this
-- ledger's commit order. Payload, payload_ref and meta are canonical JSON text: the bytes that were hashed.
CREATE TABLE event (
    position            INTEGER PRIMARY KEY,
    event_id            INTEGER NOT NULL,
    tenant_id           TEXT NOT NULL,
    organization_id     TEXT NOT NULL,
    project_id          TEXT NOT NULL,
    execution_id        INTEGER,
    stream_id           TEXT NOT NULL,
    stream_version      INTEGER NOT NULL,
    aggregate_type      TEXT NOT NULL,
    aggregate_id        TEXT NOT NULL,
    event_type          TEXT NOT NULL,
    schema_name         TEXT NOT NULL,
    schema_version      INTEGER NOT NULL,
    event_time          TEXT NOT NULL,
    ingest_time         TEXT NOT NULL,
    principal           TEXT NOT NULL,
    producer            TEXT NOT NULL,
    causation_id        INTEGER,
    correlation_id      TEXT,
    idempotency_key     TEXT,
    parent_event_id     INTEGER,
    prev_event_id       INTEGER,
    command_id          INTEGER,
    stage_id            INTEGER,
    frame_id            INTEGER,
    parent_execution_id INTEGER,
    node_name           TEXT,
    status              TEXT,
    attempt             INTEGER,
    payload             TEXT NOT NULL,
    payload_ref         TEXT,
    meta                TEXT NOT NULL,
    envelope_checksum   TEXT NOT NULL,
    chain_hash          TEXT
) STRICT;

-- One event per version of a stream: the last line of defence behind expected_version.
CREATE UNIQUE INDEX event_stream ON event (tenant_id, stream_id, stream_version);
-- Replay of an execution over all its streams in commit order (position is the rowid, so it is in the index).
CREATE INDEX event_execution ON event (execution_id, tenant_id) WHERE execution_id IS NOT NULL;
-- `--at-event`, and the lineage of commands, stages, frames and children.
CREATE INDEX event_by_id ON event (event_id);
CREATE INDEX event_command ON event (command_id) WHERE command_id IS NOT NULL;
CREATE INDEX event_stage ON event (stage_id) WHERE stage_id IS NOT NULL;
CREATE INDEX event_frame ON event (frame_id) WHERE frame_id IS NOT NULL;
CREATE INDEX event_parent_execution ON event (parent_execution_id) WHERE parent_execution_id IS NOT NULL;

CREATE TABLE stream_head (
    tenant_id   TEXT NOT NULL,
    stream_id   TEXT NOT NULL,
    version     INTEGER NOT NULL,
    event_id    INTEGER NOT NULL,
    count       INTEGER NOT NULL,
    chain_hash  TEXT NOT NULL,
    ingest_time TEXT NOT NULL,
    sealed      INTEGER NOT NULL,
    mac         TEXT,
    PRIMARY KEY (tenant_id, stream_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE ledger_head (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    position INTEGER NOT NULL,
    streams  INTEGER NOT NULL,
    total    TEXT NOT NULL,
    chain_hash TEXT NOT NULL,
    mac      TEXT,
    key_id   TEXT
) STRICT;

-- Keys outlive the events they name, so a very late retry is still recognised.
CREATE TABLE idempotency (
    tenant_id TEXT NOT NULL,
    key       TEXT NOT NULL,
    event_id  INTEGER NOT NULL,
    position  INTEGER NOT NULL,
    content   TEXT NOT NULL,
    PRIMARY KEY (tenant_id, key)
) STRICT, WITHOUT ROWID;

-- What has been committed and must still be told; the event itself is found by its position.
CREATE TABLE outbox (
    position   INTEGER PRIMARY KEY,
    status     TEXT NOT NULL DEFAULT 'PENDING',
    attempts   INTEGER NOT NULL DEFAULT 0,
    owner      TEXT,
    due_at     INTEGER NOT NULL DEFAULT 0
) STRICT;
