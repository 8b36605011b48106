-- Take a lease if it is free, has lapsed, or is the taker's own already: its token, its end and, for who names a stream,
-- how far that is; no row if somebody else has it. A lease ends by the server's time unless the caller brings a moment
-- of its own.
-- By primary key, in one statement: of two who take the same name, the second sees what the first has made of it.
-- One's own live lease keeps its token; whatever has lapsed is handed out with the next one.
-- The stream's version is read by a statement after it, which sees what was committed while the lease was waited for.
CREATE FUNCTION take_lease(
    wanted TEXT, taker TEXT, microseconds BIGINT, moment BIGINT, of_tenant TEXT, of_stream TEXT
) RETURNS TABLE (given_token BIGINT, ends_at BIGINT, reached BIGINT)
    LANGUAGE plpgsql ROWS 1
AS $$
BEGIN
    INSERT INTO lease AS held (name, owner, token, expires_at)
    VALUES (
        wanted, taker, nextval('lease_token'),
        coalesce(moment, (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT) + microseconds
    )
    ON CONFLICT (name) DO UPDATE
    SET owner = excluded.owner,
        token = CASE
            WHEN held.expires_at > coalesce(moment, (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT) THEN held.token
            ELSE nextval('lease_token')
        END,
        expires_at = greatest(
            CASE
                WHEN held.expires_at > coalesce(moment, (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT) THEN held.expires_at
            END,
            coalesce(moment, (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT) + microseconds
        )
    WHERE held.owner = excluded.owner
       OR held.expires_at <= coalesce(moment, (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT)
    RETURNING token, expires_at INTO given_token, ends_at;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- By primary key.
    SELECT version INTO reached FROM stream_head WHERE tenant_id = of_tenant AND stream_id = of_stream;
    RETURN NEXT;
END
$$;
