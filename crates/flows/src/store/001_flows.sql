-- Flows as people define them, as JSON.
CREATE TABLE flows (
  namespace  TEXT NOT NULL,
  name       TEXT NOT NULL,
  definition TEXT NOT NULL,
  revision   INTEGER NOT NULL,
  changed_at INTEGER NOT NULL,
  changed_by TEXT NOT NULL,
  PRIMARY KEY (namespace, name)
) WITHOUT ROWID;

-- Runs, each with the flow as it was when it began. A run belongs to shard `run % 16`. `announced`: its end was told.
CREATE TABLE flow_runs (
  run         INTEGER PRIMARY KEY AUTOINCREMENT,
  namespace   TEXT NOT NULL,
  owner       TEXT NOT NULL,
  flow        TEXT NOT NULL,
  definition  TEXT NOT NULL,
  input       TEXT NOT NULL,
  reply       TEXT,
  started_at  INTEGER NOT NULL,
  asked_key   TEXT,
  fingerprint BLOB,
  cancelled   INTEGER NOT NULL DEFAULT 0,
  ended       TEXT,
  ended_at    INTEGER,
  announced   INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX flow_runs_open ON flow_runs (run % 16, run, cancelled) WHERE announced = 0;
CREATE UNIQUE INDEX flow_runs_by_key ON flow_runs (namespace, asked_key) WHERE asked_key IS NOT NULL;
CREATE INDEX flow_runs_by_flow ON flow_runs (namespace, flow, run);
CREATE INDEX flow_runs_by_age ON flow_runs (ended_at) WHERE announced = 1;

-- How tasks ended for good: one row each, whoever says it and however often.
CREATE TABLE flow_outcomes (
  run      INTEGER NOT NULL,
  step     INTEGER NOT NULL,
  item     INTEGER NOT NULL,
  ok       INTEGER NOT NULL,
  said     TEXT NOT NULL,
  tries    INTEGER NOT NULL,
  node     TEXT,
  why      TEXT,
  began_at INTEGER NOT NULL,
  ended_at INTEGER NOT NULL,
  PRIMARY KEY (run, step, item)
) WITHOUT ROWID;

-- How often tasks were tried in vain so far.
CREATE TABLE flow_tries (
  run    INTEGER NOT NULL,
  step   INTEGER NOT NULL,
  item   INTEGER NOT NULL,
  tries  INTEGER NOT NULL,
  reason TEXT NOT NULL,
  PRIMARY KEY (run, step, item)
) WITHOUT ROWID;

-- What ids of requests are sealed with.
CREATE TABLE flow_secret (one INTEGER PRIMARY KEY CHECK (one = 1), secret BLOB NOT NULL);
