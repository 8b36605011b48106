-- Who may work on what, until when. A lease that ends leaves no row: AUTOINCREMENT never gives a token
-- twice, so the next holder of any name has a higher one all the same.
CREATE TABLE lease (
    token      INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT NOT NULL UNIQUE,
    owner      TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;

-- Lapsed leases, oldest first.
CREATE INDEX lease_expiry ON lease (expires_at, token);

-- Documents by path and version. Rows are added, never changed.
CREATE TABLE catalog (
    catalog_id INTEGER PRIMARY KEY,
    tenant_id  TEXT NOT NULL,
    path       TEXT NOT NULL,
    version    INTEGER NOT NULL,
    kind       TEXT NOT NULL,
    sha256     TEXT NOT NULL,
    content    TEXT NOT NULL,
    created_at TEXT NOT NULL
) STRICT;

-- One document per version of a path; the latest of a path, and paths in order.
CREATE UNIQUE INDEX catalog_path ON catalog (tenant_id, path, version);
-- The first entry with a content (catalog_id is the rowid, so it is in the index).
CREATE INDEX catalog_digest ON catalog (tenant_id, sha256);

-- What is still to be told, in order: a claim never walks over rows that only wait for the projector.
CREATE INDEX outbox_pending ON outbox (position) WHERE status = 'PENDING';
