-- Nodes that run actions, as they registered: the record as JSON. One that comes back after days is the same node.
CREATE TABLE nodes_known (
  node    TEXT PRIMARY KEY,
  last_at INTEGER NOT NULL,
  record  TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Devices that show a user's name and a password: of the password only a digest.
CREATE TABLE devices (
  name        TEXT PRIMARY KEY,
  node        TEXT NOT NULL,
  digest      BLOB NOT NULL,
  may_request INTEGER NOT NULL,
  created_at  INTEGER NOT NULL,
  created_by  TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- What was received and could not be worked with. The oldest go past a bound.
CREATE TABLE nodes_rubbish (
  seq    INTEGER PRIMARY KEY AUTOINCREMENT,
  at     INTEGER NOT NULL,
  place  TEXT NOT NULL,
  who    TEXT NOT NULL,
  reason TEXT NOT NULL,
  body   BLOB NOT NULL
) STRICT;

-- Who let a device in, or kept it out.
CREATE TABLE nodes_audit (
  seq  INTEGER PRIMARY KEY,
  at   INTEGER NOT NULL,
  who  TEXT NOT NULL,
  what TEXT NOT NULL,
  whom TEXT NOT NULL
) STRICT;
CREATE INDEX nodes_audit_by_at ON nodes_audit (at);
