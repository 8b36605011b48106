-- Executions by who called them: a cancellation goes down the tree of calls.
CREATE INDEX projection_execution_parent
    ON projection (json_extract(row, '$.parent_execution_id'), root_number, root, tenant_id, row_id)
    WHERE surface = 'execution';
