-- Who may call the server. `sha256` is the digest of the token's whole text, which has 256 random bits: it can be
-- checked, but not turned back. Rows are never deleted.
CREATE TABLE token (
    token_id        TEXT COLLATE "C" PRIMARY KEY,
    tenant_id       TEXT COLLATE "C" NOT NULL,
    organization_id TEXT COLLATE "C" NOT NULL,
    name            TEXT COLLATE "C" NOT NULL,
    roles           TEXT COLLATE "C" NOT NULL,
    created_at      TEXT COLLATE "C" NOT NULL,
    expires_at      TEXT COLLATE "C",
    revoked_at      TEXT COLLATE "C",
    last_used_on    TEXT COLLATE "C",
    sha256          TEXT COLLATE "C" NOT NULL
);

-- The tokens of a tenant in order of name and then of time.
CREATE INDEX token_name ON token (tenant_id, name, created_at, token_id);
