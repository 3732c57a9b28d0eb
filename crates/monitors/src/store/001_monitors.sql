-- Monitors as people define them, as JSON. A revision is the number of the change, over all monitors. One that was removed
-- stays for a while, so that whoever follows the revisions hears of it.
CREATE TABLE monitors (
  key        INTEGER PRIMARY KEY AUTOINCREMENT,
  uuid       TEXT NOT NULL UNIQUE,
  namespace  TEXT NOT NULL,
  name       TEXT NOT NULL,
  shard      INTEGER NOT NULL,
  definition TEXT NOT NULL,
  revision   INTEGER NOT NULL,
  owner      TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  changed_at INTEGER NOT NULL,
  changed_by TEXT NOT NULL,
  removed_at INTEGER
) STRICT;
CREATE UNIQUE INDEX monitors_by_name ON monitors (namespace, name) WHERE removed_at IS NULL;
CREATE INDEX monitors_by_revision ON monitors (revision);
CREATE INDEX monitors_by_shard ON monitors (shard) WHERE removed_at IS NULL;
CREATE TABLE monitor_revisions (one INTEGER PRIMARY KEY CHECK (one = 1), n INTEGER NOT NULL) STRICT;
INSERT INTO monitor_revisions (one, n) VALUES (1, 0);

-- What was changed, by whom: one row for each change, written with it.
CREATE TABLE monitor_changes (
  revision   INTEGER PRIMARY KEY,
  at         INTEGER NOT NULL,
  who        TEXT NOT NULL,
  what       TEXT NOT NULL,
  monitor    INTEGER NOT NULL,
  definition TEXT
) STRICT;

-- Up to where the instants of a shard have been fired.
CREATE TABLE monitor_rounds (shard INTEGER PRIMARY KEY, fired_until INTEGER NOT NULL) STRICT;

-- What is believed of each, as JSON.
CREATE TABLE monitor_health (monitor INTEGER PRIMARY KEY, health TEXT NOT NULL) STRICT;

-- One outcome an instant, whoever says it and however often.
CREATE TABLE monitor_outcomes (
  monitor INTEGER NOT NULL,
  at      INTEGER NOT NULL,
  verdict INTEGER NOT NULL,
  took_us INTEGER,
  detail  TEXT,
  PRIMARY KEY (monitor, at)
) STRICT, WITHOUT ROWID;
CREATE INDEX monitor_outcomes_by_age ON monitor_outcomes (at);

CREATE TABLE monitor_incidents (
  monitor   INTEGER NOT NULL,
  opened_at INTEGER NOT NULL,
  since     INTEGER NOT NULL,
  closed_at INTEGER,
  evidence  TEXT NOT NULL,
  PRIMARY KEY (monitor, opened_at)
) STRICT, WITHOUT ROWID;
