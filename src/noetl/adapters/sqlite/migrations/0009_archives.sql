-- Which histories are archived, and where. A row is written once and never changed. `root_number` is the execution's id
-- inside `root`, or 0, because ids must not be ordered as text.
CREATE TABLE archive_manifest_index (
    tenant_id       TEXT NOT NULL,
    root_number     INTEGER NOT NULL,
    root            TEXT NOT NULL,
    uri             TEXT NOT NULL,
    events          INTEGER NOT NULL,
    first_position  INTEGER NOT NULL,
    last_position   INTEGER NOT NULL,
    stream_heads    TEXT NOT NULL,
    manifest_sha256 TEXT NOT NULL,
    bytes           INTEGER NOT NULL,
    archived_at     TEXT NOT NULL,
    PRIMARY KEY (tenant_id, root_number, root)
) STRICT, WITHOUT ROWID;
