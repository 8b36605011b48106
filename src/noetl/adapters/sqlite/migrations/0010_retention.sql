-- Roots whose events an archive has and this file has not any more. Their stream heads and idempotency keys stay.
CREATE TABLE forgotten (
    tenant_id       TEXT NOT NULL,
    root            TEXT NOT NULL,
    family          TEXT NOT NULL,
    uri             TEXT NOT NULL,
    manifest_sha256 TEXT NOT NULL,
    first_position  INTEGER NOT NULL,
    last_position   INTEGER NOT NULL,
    events          INTEGER NOT NULL,
    size            INTEGER NOT NULL,
    forgotten_at    TEXT NOT NULL,
    mac             TEXT,
    PRIMARY KEY (tenant_id, root)
) STRICT, WITHOUT ROWID;

-- All members of a family.
CREATE INDEX forgotten_family ON forgotten (tenant_id, family);

-- What is left of their events: the checksums, 32 bytes each, of those that stood side by side.
CREATE TABLE forgotten_run (
    first_position INTEGER PRIMARY KEY,
    last_position  INTEGER NOT NULL,
    tenant_id      TEXT NOT NULL,
    root           TEXT NOT NULL,
    checksums      BLOB NOT NULL
) STRICT;

-- A root's runs in order (first_position is the rowid, so it is in the index).
CREATE INDEX forgotten_run_root ON forgotten_run (tenant_id, root);
