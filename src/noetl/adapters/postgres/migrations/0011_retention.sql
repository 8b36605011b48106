-- Roots whose events an archive has and the log has not any more. Their stream heads and idempotency keys stay.
CREATE TABLE forgotten (
    tenant_id       TEXT COLLATE "C" NOT NULL,
    root            TEXT COLLATE "C" NOT NULL,
    family          TEXT COLLATE "C" NOT NULL,
    uri             TEXT COLLATE "C" NOT NULL,
    manifest_sha256 TEXT COLLATE "C" NOT NULL,
    first_position  BIGINT NOT NULL,
    last_position   BIGINT NOT NULL,
    events          BIGINT NOT NULL,
    size            BIGINT NOT NULL,
    forgotten_at    TEXT COLLATE "C" NOT NULL,
    mac             TEXT COLLATE "C",
    PRIMARY KEY (tenant_id, root)
);

-- All members of a family.
CREATE INDEX forgotten_family ON forgotten (tenant_id, family);

-- What is left of their events: the checksums, 32 bytes each, of those that stood side by side.
CREATE TABLE forgotten_run (
    first_position BIGINT PRIMARY KEY,
    last_position  BIGINT NOT NULL,
    tenant_id      TEXT COLLATE "C" NOT NULL,
    root           TEXT COLLATE "C" NOT NULL,
    checksums      BYTEA NOT NULL
);

-- A root's runs in order.
CREATE INDEX forgotten_run_root ON forgotten_run (tenant_id, root, first_position);

ALTER TABLE forgotten ENABLE ROW LEVEL SECURITY;
ALTER TABLE forgotten_run ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON forgotten FOR SELECT USING (tenant_id = (SELECT visible_tenant()));
CREATE POLICY own_tenant ON forgotten_run FOR SELECT USING (tenant_id = (SELECT visible_tenant()));
