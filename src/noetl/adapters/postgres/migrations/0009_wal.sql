-- How much of a write-ahead log on JetStream these tables have. A row is here if and only if the events are written by
-- the log's materializer alone; it moves in the transaction that adds the events.
CREATE TABLE wal_mark (
    one      SMALLINT PRIMARY KEY CHECK (one = 1),
    stream   TEXT COLLATE "C" NOT NULL,
    life     TEXT COLLATE "C" NOT NULL,
    seq      BIGINT NOT NULL,
    position BIGINT NOT NULL
) WITH (fillfactor = 10);

ALTER TABLE wal_mark ENABLE ROW LEVEL SECURITY;
