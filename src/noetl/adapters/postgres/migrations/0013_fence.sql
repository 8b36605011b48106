-- Lock the ledger's head as the other `hold_ledger` does, and write under leases: the time, or NULL also if one of the
-- leases has lapsed or has another holder. They are given back with what is written. Whoever wants one of them waits
-- for the end of this transaction, because their rows are locked by then, and finds the log as it is afterwards.
-- A lease ends by the server's time unless the caller brings a moment of its own.
-- All are looked at before one is given back, because NULL ends no transaction: what was done by then would stay.
CREATE FUNCTION hold_ledger(
    expected_position BIGINT, expected_chain TEXT, roots JSON, keys JSON, leases JSON, moment BIGINT
) RETURNS BIGINT
    LANGUAGE plpgsql
AS $$
DECLARE
    instant BIGINT := hold_ledger(expected_position, expected_chain, roots, keys);
    wanted RECORD;
    names TEXT[] := '{}';
BEGIN
    IF instant IS NULL OR leases IS NULL THEN
        RETURN instant;
    END IF;
    -- One after the other by primary key: a join may read the whole table.
    FOR wanted IN SELECT name, owner, token FROM json_to_recordset(leases) AS given (name TEXT, owner TEXT, token BIGINT)
    LOOP
        PERFORM
        FROM lease
        WHERE name = wanted.name AND owner = wanted.owner AND token = wanted.token
          AND expires_at > coalesce(moment, instant)
        FOR UPDATE;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
        names := names || wanted.name;
    END LOOP;
    DELETE FROM lease WHERE name = ANY (names);
    RETURN instant;
END
$$;
