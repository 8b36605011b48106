-- Small values that processes share. A value that is set again gets a new row: AUTOINCREMENT never gives a
-- revision twice, so one that was read before a delete can never be taken for a later one.
CREATE TABLE kv (
    revision   INTEGER PRIMARY KEY AUTOINCREMENT,
    key        TEXT NOT NULL UNIQUE,
    value      BLOB NOT NULL,
    expires_at INTEGER
) STRICT;
