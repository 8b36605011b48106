-- The wallet's records. What is secret is in `ciphertext`, under a data key of its own, and that in `wrapped_key`
-- under the key-encryption key `key_id`, which is never in this database. `nonce` belongs to the ciphertext.
CREATE TABLE credential (
    tenant_id   TEXT COLLATE "C" NOT NULL,
    name        TEXT COLLATE "C" NOT NULL,
    type        TEXT COLLATE "C" NOT NULL,
    description TEXT COLLATE "C" NOT NULL,
    tags        TEXT COLLATE "C" NOT NULL,
    fields      TEXT COLLATE "C" NOT NULL,
    version     BIGINT NOT NULL,
    key_id      TEXT COLLATE "C" NOT NULL,
    created_at  TEXT COLLATE "C" NOT NULL,
    updated_at  TEXT COLLATE "C" NOT NULL,
    wrapped_key BYTEA NOT NULL,
    nonce       BYTEA NOT NULL,
    ciphertext  BYTEA NOT NULL,
    PRIMARY KEY (tenant_id, name)
);

-- Which key-encryption key is the current one: the last row. A writer that holds another one is told so
-- before it can seal a record that nobody else could open.
CREATE TABLE credential_key (
    version    BIGINT PRIMARY KEY,
    key_id     TEXT COLLATE "C" NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL
);
