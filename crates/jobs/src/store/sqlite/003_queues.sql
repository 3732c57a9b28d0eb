-- Queues as people define them, as JSON. A revision is the number of the change, over all queues.
CREATE TABLE queues (
  name       TEXT PRIMARY KEY,
  definition TEXT NOT NULL,
  revision   INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  changed_at INTEGER NOT NULL,
  changed_by TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX queues_by_revision ON queues (revision);
INSERT INTO generations (name, n) VALUES ('queues', 1) ON CONFLICT DO NOTHING;

-- Until now a queue was there when somebody used it: those in use go on.
INSERT INTO queues (name, definition, revision, created_at, changed_at, changed_by)
SELECT name, '{"name":"' || name || '"}', 1, at, at, 'upgrade'
FROM (SELECT 'default' AS name UNION SELECT queue FROM jobs WHERE finished_at IS NULL UNION SELECT queue FROM sessions),
     (SELECT CAST(strftime('%s', 'now') AS INTEGER) * 1000 AS at);

-- What was changed, by whom: one row for each change, written with it.
CREATE TABLE queue_changes (
  revision   INTEGER PRIMARY KEY,
  at         INTEGER NOT NULL,
  who        TEXT NOT NULL,
  what       TEXT NOT NULL,
  queue      TEXT NOT NULL,
  definition TEXT
) STRICT;

ALTER TABLE jobs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
CREATE INDEX jobs_open_by_queue ON jobs (queue, key) WHERE finished_at IS NULL;
