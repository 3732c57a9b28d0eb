-- What the manager keeps for the resource manager. Every change that one makes is fenced by the lease of group 'elastic'.

-- Of each queue that is or was elastic: what was decided, as JSON.
CREATE TABLE fleet_queues (
  queue      TEXT PRIMARY KEY,
  state      TEXT NOT NULL,
  decision   TEXT NOT NULL,
  trouble    TEXT,
  decided_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Workers that a provider has, or is about to have.
CREATE TABLE fleet_members (
  worker TEXT PRIMARY KEY,
  queue  TEXT NOT NULL,
  life   TEXT NOT NULL,
  since  INTEGER NOT NULL,
  node   TEXT
) STRICT, WITHOUT ROWID;

-- What was asked for under a name, so that asking again gives the same.
CREATE TABLE fleet_requests (
  generation INTEGER NOT NULL,
  request    TEXT NOT NULL,
  queue      TEXT NOT NULL,
  workers    TEXT NOT NULL,
  PRIMARY KEY (generation, request)
) STRICT, WITHOUT ROWID;

-- How many were wanted, over time.
CREATE TABLE fleet_changes (
  seq        INTEGER PRIMARY KEY,
  queue      TEXT NOT NULL,
  at         INTEGER NOT NULL,
  from_count INTEGER NOT NULL,
  to_count   INTEGER NOT NULL,
  because    TEXT NOT NULL
) STRICT;
CREATE INDEX fleet_changes_by_queue ON fleet_changes (queue, seq);
CREATE INDEX fleet_changes_by_at ON fleet_changes (at);

-- Nodes as the last offer had them, as JSON, and what people want of them. One that is not offered is kept only while
-- somebody wants something of it.
CREATE TABLE fleet_nodes (
  name       TEXT PRIMARY KEY,
  node       TEXT NOT NULL,
  wish       TEXT NOT NULL DEFAULT 'open',
  offered_at INTEGER
) STRICT, WITHOUT ROWID;

-- The sorts of node that could be had: one row, once there was an offer.
CREATE TABLE fleet_kinds (
  one        INTEGER PRIMARY KEY CHECK (one = 1),
  kinds      TEXT NOT NULL,
  offered_at INTEGER NOT NULL
) STRICT;

-- Workers to whom nothing is handed any more, whoever started them.
CREATE TABLE fleet_draining (
  worker TEXT PRIMARY KEY,
  queue  TEXT NOT NULL,
  since  INTEGER NOT NULL,
  who    TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Only ever added to, in the transaction of the change it tells of; old lines are removed.
CREATE TABLE fleet_audit (
  seq    INTEGER PRIMARY KEY,
  at     INTEGER NOT NULL,
  who    TEXT NOT NULL,
  what   TEXT NOT NULL,
  target TEXT NOT NULL
) STRICT;
CREATE INDEX fleet_audit_by_at ON fleet_audit (at);
