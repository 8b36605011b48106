-- Who may call the server. `sha256` is the digest of the token's whole text, which has 256 random bits: it can be
-- checked, but not turned back. Rows are never deleted.
CREATE TABLE token (
    token_id        TEXT PRIMARY KEY,
    tenant_id       TEXT NOT NULL,
    organization_id TEXT NOT NULL,
    name            TEXT NOT NULL,
    roles           TEXT NOT NULL,
    created_at      TEXT NOT NULL,
    expires_at      TEXT,
    revoked_at      TEXT,
    last_used_on    TEXT,
    sha256          TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The tokens of a tenant in order of name and then of time.
CREATE INDEX token_name ON token (tenant_id, name, created_at, token_id);
