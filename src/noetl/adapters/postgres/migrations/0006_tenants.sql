-- Who sees which tenant's rows. The owner of these tables, which is the service itself, sees all of them and says in
-- every statement whose it wants. Any other role sees the rows of one tenant, whatever its statement says, and none
-- before it is written down here and has been granted SELECT on what it may read.
-- A role without a tenant of its own acts for many: it names one with SET LOCAL noetl.tenant = '...'.
CREATE TABLE tenant_role (
    role_name TEXT COLLATE "C" PRIMARY KEY,
    tenant_id TEXT COLLATE "C"
);

-- As its owner, because nobody else may read who sees what; the caller is known by the session and by SET ROLE.
CREATE FUNCTION visible_tenant() RETURNS TEXT
    LANGUAGE SQL STABLE SECURITY DEFINER PARALLEL SAFE
    SET search_path = noetl, pg_temp
AS $$
    SELECT coalesce(tenant_id, nullif(current_setting('noetl.tenant', true), ''))
    FROM tenant_role
    WHERE role_name = CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END
$$;

ALTER TABLE event_log ENABLE ROW LEVEL SECURITY;
ALTER TABLE event_log_rest ENABLE ROW LEVEL SECURITY;
ALTER TABLE stream_head ENABLE ROW LEVEL SECURITY;
ALTER TABLE idempotency ENABLE ROW LEVEL SECURITY;
ALTER TABLE catalog ENABLE ROW LEVEL SECURITY;
ALTER TABLE projection ENABLE ROW LEVEL SECURITY;
ALTER TABLE snapshot ENABLE ROW LEVEL SECURITY;
ALTER TABLE credential ENABLE ROW LEVEL SECURITY;
ALTER TABLE token ENABLE ROW LEVEL SECURITY;

-- What belongs to no tenant is for the service alone: row-level security without a policy shows nothing.
ALTER TABLE outbox ENABLE ROW LEVEL SECURITY;
ALTER TABLE lease ENABLE ROW LEVEL SECURITY;
ALTER TABLE ledger_head ENABLE ROW LEVEL SECURITY;
ALTER TABLE projection_checkpoint ENABLE ROW LEVEL SECURITY;
ALTER TABLE credential_key ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenant_role ENABLE ROW LEVEL SECURITY;

-- The sub-select is asked once for a statement, not for each row.
CREATE POLICY own_tenant ON event_log FOR SELECT USING (tenant_id = (SELECT visible_tenant()));
CREATE POLICY own_tenant ON event_log_rest FOR SELECT USING (tenant_id = (SELECT visible_tenant()));
CREATE POLICY own_tenant ON stream_head FOR SELECT USING (tenant_id = (SELECT visible_tenant()));
CREATE POLICY own_tenant ON idempotency FOR SELECT USING (tenant_id = (SELECT visible_tenant()));
CREATE POLICY own_tenant ON catalog FOR SELECT USING (tenant_id = (SELECT visible_tenant()));
CREATE POLICY own_tenant ON projection FOR SELECT USING (tenant_id = (SELECT visible_tenant()));
CREATE POLICY own_tenant ON snapshot FOR SELECT USING (tenant_id = (SELECT visible_tenant()));
CREATE POLICY own_tenant ON credential FOR SELECT USING (tenant_id = (SELECT visible_tenant()));
CREATE POLICY own_tenant ON token FOR SELECT USING (tenant_id = (SELECT visible_tenant()));
