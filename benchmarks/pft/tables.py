"""The queue and the records in Postgres, and the statements that every contestant runs on them.

A row of the queue is a patient in a domain, or an assessment whose details are wanted. A record is saved and its row
marked done in one statement, so a row is either open or wholly there, and running one twice changes nothing.
The playbook has the same statements, with templates where these have parameters; a test compares the two.
"""

from __future__ import annotations

__all__ = [
    "CLAIM", "EXPLODE", "FRAME_ROWS", "OUTSTANDING", "RECLAIM", "SAVE_DEMOGRAPHICS", "SAVE_DETAILS", "SAVE_PAGES",
    "SEED", "TABLES", "VALIDATE",
]  # fmt: skip

FRAME_ROWS = 50
"""Rows that are claimed at once."""

# The counts are made without a join: tables that nobody has analysed yet make its plan quadratic.
TABLES = """
CREATE TABLE IF NOT EXISTS pft_queue (
  run text, kind text, id text, facility int NOT NULL, patient int NOT NULL,
  state text NOT NULL DEFAULT 'pending', claimed_at timestamptz, PRIMARY KEY (run, kind, id));
CREATE INDEX IF NOT EXISTS pft_queue_pending ON pft_queue (run, facility, kind, id) WHERE state = 'pending';
CREATE TABLE IF NOT EXISTS pft_record (
  run text, domain text, id text, facility int NOT NULL, patient int NOT NULL, page int NOT NULL, total int NOT NULL,
  value int NOT NULL, mds_ids jsonb, PRIMARY KEY (run, domain, id));
CREATE TABLE IF NOT EXISTS pft_detail (
  run text, id text, facility int NOT NULL, patient int NOT NULL, payload jsonb NOT NULL, PRIMARY KEY (run, id));
CREATE TABLE IF NOT EXISTS pft_validated (
  run text, facility int, kind text, expected bigint NOT NULL, found bigint NOT NULL,
  PRIMARY KEY (run, facility, kind));
CREATE OR REPLACE VIEW pft_count AS
  SELECT run, facility, kind, sum(expected) AS expected, sum(found) AS found FROM (
    SELECT run, facility, kind, patient, max(total) AS expected, sum(found) AS found FROM (
      SELECT run, facility, kind, patient, 1 AS total, 0 AS found FROM pft_queue WHERE kind <> 'mds_details'
      UNION ALL SELECT run, facility, domain, patient, total, 1 FROM pft_record
    ) AS one GROUP BY run, facility, kind, patient
  ) AS patients GROUP BY run, facility, kind
  UNION ALL
  SELECT run, facility, 'mds_details', sum(wanted), sum(found) FROM (
    SELECT run, facility, jsonb_array_length(mds_ids) AS wanted, 0 AS found FROM pft_record WHERE domain = 'assessments'
    UNION ALL SELECT run, facility, 0, 1 FROM pft_detail
  ) AS details GROUP BY run, facility;
"""

SEED = """
INSERT INTO pft_queue (run, facility, kind, id, patient)
SELECT %(run)s, %(facility)s, kind, patient::text, patient
FROM generate_series((%(facility)s - 1) * %(patients)s + 1, %(facility)s * %(patients)s) AS patient,
  unnest(ARRAY['assessments', 'conditions', 'medications', 'vital_signs', 'demographics']) AS kind
ON CONFLICT DO NOTHING
"""

# Relies on pft_queue_pending. By ctid, because the rows are locked and no plan is cheaper.
CLAIM = """
UPDATE pft_queue SET state = 'claimed', claimed_at = now() WHERE ctid = ANY(ARRAY(
  SELECT ctid FROM pft_queue
  WHERE run = %(run)s AND facility = %(facility)s AND kind = %(kind)s AND state = 'pending'
  ORDER BY id LIMIT %(rows)s FOR UPDATE SKIP LOCKED))
RETURNING kind, id, patient
"""

SAVE_PAGES = """
WITH saved AS (
  INSERT INTO pft_record (run, domain, id, facility, patient, page, total, value, mds_ids)
  SELECT %(run)s, %(kind)s, record ->> 'id', %(facility)s, %(patient)s, (answer -> 'paging' ->> 'page')::int,
    (answer -> 'paging' ->> 'total')::int, (record ->> 'value')::int, record -> 'mds_ids'
  FROM jsonb_array_elements(%(answers)s::jsonb) AS answer, jsonb_array_elements(answer -> 'data') AS record
  ON CONFLICT DO NOTHING)
UPDATE pft_queue SET state = 'done' WHERE run = %(run)s AND kind = %(kind)s AND id = %(id)s
"""

SAVE_DEMOGRAPHICS = """
WITH saved AS (
  INSERT INTO pft_record (run, domain, id, facility, patient, page, total, value)
  SELECT %(run)s, 'demographics', record ->> 'id', %(facility)s, %(patient)s, 1, 1, (record ->> 'value')::int
  FROM (SELECT %(answer)s::jsonb AS record) AS answer
  ON CONFLICT DO NOTHING)
UPDATE pft_queue SET state = 'done' WHERE run = %(run)s AND kind = 'demographics' AND id = %(id)s
"""

EXPLODE = """
INSERT INTO pft_queue (run, facility, kind, id, patient)
SELECT run, facility, 'mds_details', mds, patient FROM pft_record, jsonb_array_elements_text(mds_ids) AS mds
WHERE run = %(run)s AND facility = %(facility)s AND domain = 'assessments'
ON CONFLICT DO NOTHING
"""

SAVE_DETAILS = """
WITH saved AS (
  INSERT INTO pft_detail (run, id, facility, patient, payload)
  SELECT %(run)s, detail ->> 'assessment_id', %(facility)s, %(patient)s, detail -> 'payload'
  FROM jsonb_array_elements(%(answer)s::jsonb -> 'rows') AS detail
  ON CONFLICT DO NOTHING)
UPDATE pft_queue SET state = 'done' WHERE run = %(run)s AND kind = 'mds_details' AND id = %(id)s
"""

OUTSTANDING = """
SELECT count(*) AS open FROM pft_queue WHERE run = %(run)s AND facility = %(facility)s AND state <> 'done'
"""

RECLAIM = """
UPDATE pft_queue SET state = 'pending', claimed_at = NULL
WHERE run = %(run)s AND facility = %(facility)s AND state = 'claimed'
  AND claimed_at < clock_timestamp() - %(reclaim)s * interval '1 second'
"""

VALIDATE = """
INSERT INTO pft_validated (run, facility, kind, expected, found)
SELECT run, facility, kind, expected, found FROM pft_count WHERE run = %(run)s AND facility = %(facility)s
ON CONFLICT (run, facility, kind) DO UPDATE SET expected = excluded.expected, found = excluded.found
RETURNING kind, expected, found
"""
