-- Who may work on what, until when. A lease that ends leaves no row: the sequence never gives a token twice, so the
-- next holder of any name has a higher one all the same.
CREATE SEQUENCE lease_token;

CREATE TABLE lease (
    name       TEXT COLLATE "C" PRIMARY KEY,
    owner      TEXT COLLATE "C" NOT NULL,
    token      BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

-- Lapsed leases, oldest first.
CREATE INDEX lease_expiry ON lease (expires_at, token);

-- Documents by path and version. Rows are added, never changed.
CREATE TABLE catalog (
    catalog_id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id  TEXT COLLATE "C" NOT NULL,
    path       TEXT COLLATE "C" NOT NULL,
    version    BIGINT NOT NULL,
    kind       TEXT COLLATE "C" NOT NULL,
    sha256     TEXT COLLATE "C" NOT NULL,
    content    TEXT COLLATE "C" NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL
);

-- One document per version of a path; the latest of a path, and paths in order.
CREATE UNIQUE INDEX catalog_path ON catalog (tenant_id, path, version);
-- The first entry with a content.
CREATE INDEX catalog_digest ON catalog (tenant_id, sha256, catalog_id);
