-- Playbooks that run by the clock. `record` is JSON; beside it stands what is looked for. `due_at` is when somebody has
-- to look after a schedule, in microseconds, and nothing while it is paused. A row that is changed gets a new number:
-- AUTOINCREMENT never gives a revision twice.
CREATE TABLE schedule (
    revision        INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id       TEXT NOT NULL,
    organization_id TEXT NOT NULL,
    name            TEXT NOT NULL,
    removed         INTEGER NOT NULL,
    due_at          INTEGER,
    record          TEXT NOT NULL,
    UNIQUE (tenant_id, name)
) STRICT;

-- Those of all tenants that are due, the longest due first.
CREATE INDEX schedule_due ON schedule (due_at, revision) WHERE due_at IS NOT NULL;
