-- Small values that processes share. The sequence never gives a revision twice, so one that was read before a delete can
-- never be taken for a later one. They belong to no tenant: row-level security without a policy shows them to nobody else.
CREATE SEQUENCE kv_revision;

CREATE TABLE kv (
    key        TEXT COLLATE "C" PRIMARY KEY,
    value      BYTEA NOT NULL,
    revision   BIGINT NOT NULL,
    expires_at BIGINT
) WITH (fillfactor = 70);

ALTER TABLE kv ENABLE ROW LEVEL SECURITY;
