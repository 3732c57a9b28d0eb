CREATE TABLE generations (
  name TEXT PRIMARY KEY,
  n    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE jobs (
  key          INTEGER PRIMARY KEY AUTOINCREMENT,
  namespace    TEXT NOT NULL,
  owner        TEXT NOT NULL,
  queue        TEXT NOT NULL,
  name         TEXT,
  labels       TEXT NOT NULL,
  spec         TEXT NOT NULL,
  kind         INTEGER NOT NULL,
  first        INTEGER NOT NULL,
  total        INTEGER NOT NULL,
  trace        TEXT NOT NULL,
  created_at   INTEGER NOT NULL,
  ok           INTEGER NOT NULL DEFAULT 0,
  failed       INTEGER NOT NULL DEFAULT 0,
  timed_out    INTEGER NOT NULL DEFAULT 0,
  cancelled    INTEGER NOT NULL DEFAULT 0,
  lost         INTEGER NOT NULL DEFAULT 0,
  dead         INTEGER NOT NULL DEFAULT 0,
  -- Set when the whole job was cancelled: its tasks without a final row are cancelled, without a row each.
  cancelled_at INTEGER,
  finished_at  INTEGER,
  idempotency  TEXT,
  digest       BLOB
) STRICT;
CREATE UNIQUE INDEX jobs_idempotency ON jobs (namespace, owner, idempotency) WHERE idempotency IS NOT NULL;
CREATE INDEX jobs_open ON jobs (key) WHERE finished_at IS NULL;
CREATE INDEX jobs_finished ON jobs (finished_at) WHERE finished_at IS NOT NULL;

-- The entries or commands of a job, packed, by the offset of the first task.
CREATE TABLE segments (
  job   INTEGER NOT NULL,
  first INTEGER NOT NULL,
  body  BLOB NOT NULL,
  PRIMARY KEY (job, first)
) STRICT, WITHOUT ROWID;

-- Only tasks that were tried in vain (state 0) or that ended (the codes of `Final`).
CREATE TABLE tasks (
  job          INTEGER NOT NULL,
  idx          INTEGER NOT NULL,
  state        INTEGER NOT NULL,
  generation   INTEGER,
  n            INTEGER,
  failures     INTEGER NOT NULL,
  losses       INTEGER NOT NULL,
  not_before   INTEGER,
  worker       TEXT,
  exit         INTEGER,
  signal       INTEGER,
  reason       TEXT,
  started_at   INTEGER,
  ended_at     INTEGER,
  wall_us      INTEGER,
  cpu_user_us  INTEGER,
  cpu_system_us INTEGER,
  memory_peak  INTEGER,
  PRIMARY KEY (job, idx)
) STRICT, WITHOUT ROWID;

-- What the deciding attempt wrote, as far as its outcome carried it.
CREATE TABLE outputs (
  job        INTEGER NOT NULL,
  idx        INTEGER NOT NULL,
  stream     INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  n          INTEGER NOT NULL,
  bytes      INTEGER NOT NULL,
  truncated  INTEGER NOT NULL,
  in_blobs   INTEGER NOT NULL,
  tail       BLOB NOT NULL,
  PRIMARY KEY (job, idx, stream)
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
  session TEXT PRIMARY KEY,
  worker  TEXT NOT NULL,
  queue   TEXT NOT NULL
) STRICT, WITHOUT ROWID;
