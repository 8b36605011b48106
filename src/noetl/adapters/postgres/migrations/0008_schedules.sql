-- Playbooks that run by the clock. `record` is JSON; beside it stands what is looked for. `due_at` is when somebody has
-- to look after a schedule, in microseconds, and nothing while it is paused. The sequence never gives a revision twice.
CREATE SEQUENCE schedule_revision;

CREATE TABLE schedule (
    tenant_id       TEXT COLLATE "C" NOT NULL,
    name            TEXT COLLATE "C" NOT NULL,
    organization_id TEXT COLLATE "C" NOT NULL,
    removed         BOOLEAN NOT NULL,
    due_at          BIGINT,
    revision        BIGINT NOT NULL,
    record          TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, name)
) WITH (fillfactor = 70);

-- Those of all tenants that are due, the longest due first.
CREATE INDEX schedule_due ON schedule (due_at, revision) WHERE due_at IS NOT NULL;

ALTER TABLE schedule ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON schedule FOR SELECT USING (tenant_id = (SELECT visible_tenant()));
