-- The wallet's records. What is secret is in `ciphertext`, under a data key of its own, and that in `wrapped_key`
-- under the key-encryption key `key_id`, which is never in this file. `nonce` belongs to the ciphertext.
CREATE TABLE credential (
    tenant_id   TEXT NOT NULL,
    name        TEXT NOT NULL,
    type        TEXT NOT NULL,
    description TEXT NOT NULL,
    tags        TEXT NOT NULL,
    fields      TEXT NOT NULL,
    version     INTEGER NOT NULL,
    key_id      TEXT NOT NULL,
    created_at  TEXT NOT NULL,
    updated_at  TEXT NOT NULL,
    wrapped_key BLOB NOT NULL,
    nonce       BLOB NOT NULL,
    ciphertext  BLOB NOT NULL,
    PRIMARY KEY (tenant_id, name)
) STRICT, WITHOUT ROWID;

-- Which key-encryption key is the current one: the last row. A writer that holds another one is told so
-- before it can seal a record that nobody else could open.
CREATE TABLE credential_key (
    version    INTEGER PRIMARY KEY,
    key_id     TEXT NOT NULL,
    created_at TEXT NOT NULL
) STRICT;
