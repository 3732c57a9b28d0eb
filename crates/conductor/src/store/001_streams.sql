-- Streams as they were deployed, each with the text of its definition. Another deployment under the same name is another
-- stream, which `follows` the one in whose place it came. One that was deleted stays until nothing of it is left.
CREATE TABLE streams (
  id          TEXT PRIMARY KEY,
  namespace   TEXT NOT NULL,
  name        TEXT NOT NULL,
  owner       TEXT NOT NULL,
  shard       INTEGER NOT NULL,
  definition  TEXT NOT NULL,
  sameness    BLOB NOT NULL,
  state       TEXT NOT NULL,
  follows     TEXT,
  deployed_at INTEGER NOT NULL,
  changed_at  INTEGER NOT NULL,
  changed_by  TEXT NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX streams_by_name ON streams (namespace, name) WHERE state <> 'deleted';
CREATE INDEX streams_by_shard ON streams (shard);

-- Which host runs which part, in which of its lives, under which epoch. Without a host, nobody can.
CREATE TABLE stream_parts (
  stream  TEXT NOT NULL,
  kind    TEXT NOT NULL,
  n       INTEGER NOT NULL,
  replica INTEGER NOT NULL,
  host    TEXT,
  boot    INTEGER NOT NULL DEFAULT 0,
  epoch   INTEGER NOT NULL,
  why     TEXT NOT NULL,
  since   INTEGER NOT NULL,
  PRIMARY KEY (stream, kind, n, replica)
) WITHOUT ROWID;
CREATE INDEX stream_parts_by_host ON stream_parts (host, boot);

-- Hosts as they described themselves and their parts with their last beat.
CREATE TABLE stream_hosts (
  id       TEXT PRIMARY KEY,
  boot     INTEGER NOT NULL,
  beats    INTEGER NOT NULL,
  heard_at INTEGER NOT NULL,
  host     TEXT NOT NULL,
  node     TEXT NOT NULL,
  reports  TEXT NOT NULL
) WITHOUT ROWID;

-- Snapshots that are in the blobs. One that is not needed any more is retired first, and removed when nobody can be reading it.
CREATE TABLE stream_snapshots (
  key        TEXT PRIMARY KEY,
  stream     TEXT NOT NULL,
  kind       TEXT NOT NULL,
  n          INTEGER NOT NULL,
  replica    INTEGER NOT NULL,
  epoch      INTEGER NOT NULL,
  at_offset  INTEGER NOT NULL,
  bytes      INTEGER NOT NULL,
  taken_at   INTEGER NOT NULL,
  retired_at INTEGER
) WITHOUT ROWID;
CREATE INDEX stream_snapshots_by_stream ON stream_snapshots (stream);

-- What people did with streams, and which part went where and why.
CREATE TABLE stream_history (
  n         INTEGER PRIMARY KEY AUTOINCREMENT,
  at        INTEGER NOT NULL,
  namespace TEXT NOT NULL,
  name      TEXT NOT NULL,
  stream    TEXT NOT NULL,
  who       TEXT NOT NULL,
  what      TEXT NOT NULL,
  detail    TEXT NOT NULL
);
CREATE INDEX stream_history_by_name ON stream_history (namespace, name, n);
CREATE INDEX stream_history_by_age ON stream_history (at);

-- The last row that was handed over for a sink, so that one that comes again is known.
CREATE TABLE stream_handed_over (
  stream    TEXT NOT NULL,
  n         INTEGER NOT NULL,
  at_offset INTEGER NOT NULL,
  at_row    INTEGER NOT NULL,
  PRIMARY KEY (stream, n)
) WITHOUT ROWID;
