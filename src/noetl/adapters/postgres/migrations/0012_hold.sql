-- Lock the ledger's head until the transaction ends, if it is where the caller has left it: then nobody has appended
-- meanwhile, and what the caller remembers of the log holds. The time in microseconds; NULL if the head has moved, if
-- one of the roots is forgotten or one that should be new is not, or if one of the keys is known.
-- The lock is a statement of its own, because the others must see what was committed while it was waited for.
-- OFFSET 0 keeps each row's own look into an index from becoming a join, which may read a whole table.
CREATE FUNCTION hold_ledger(expected_position BIGINT, expected_chain TEXT, roots JSON, keys JSON) RETURNS BIGINT
    LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM FROM ledger_head WHERE position = expected_position AND chain_hash = expected_chain FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    -- By primary keys. '0' is the character after '/'.
    PERFORM
    FROM json_to_recordset(roots) AS wanted (tenant_id TEXT, root TEXT, new BOOLEAN)
    WHERE EXISTS (
        SELECT FROM forgotten WHERE forgotten.tenant_id = wanted.tenant_id AND forgotten.root = wanted.root OFFSET 0
    ) OR wanted.new AND EXISTS (
        SELECT FROM stream_head WHERE stream_head.tenant_id = wanted.tenant_id AND stream_id = wanted.root OFFSET 0
    ) OR wanted.new AND EXISTS (
        SELECT FROM stream_head
        WHERE stream_head.tenant_id = wanted.tenant_id
          AND stream_id > (wanted.root || '/') COLLATE "C" AND stream_id < (wanted.root || '0') COLLATE "C"
        OFFSET 0
    );
    IF FOUND THEN
        RETURN NULL;
    END IF;
    -- By primary key.
    PERFORM
    FROM json_to_recordset(keys) AS wanted (tenant_id TEXT, key TEXT)
    WHERE EXISTS (
        SELECT FROM idempotency WHERE idempotency.tenant_id = wanted.tenant_id AND idempotency.key = wanted.key OFFSET 0
    );
    IF FOUND THEN
        RETURN NULL;
    END IF;
    RETURN (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT;
END
$$;
