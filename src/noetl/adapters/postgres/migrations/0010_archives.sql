-- Which histories are archived, and where. A row is written once and never changed. `root_number` is the execution's id
-- inside `root`, or 0, because ids must not be ordered as text.
CREATE TABLE archive_manifest_index (
    tenant_id       TEXT COLLATE "C" NOT NULL,
    root_number     BIGINT NOT NULL,
    root            TEXT COLLATE "C" NOT NULL,
    uri             TEXT COLLATE "C" NOT NULL,
    events          BIGINT NOT NULL,
    first_position  BIGINT NOT NULL,
    last_position   BIGINT NOT NULL,
    stream_heads    TEXT COLLATE "C" NOT NULL,
    manifest_sha256 TEXT COLLATE "C" NOT NULL,
    bytes           BIGINT NOT NULL,
    archived_at     TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, root_number, root)
);

ALTER TABLE archive_manifest_index ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON archive_manifest_index FOR SELECT USING (tenant_id = (SELECT visible_tenant()));
