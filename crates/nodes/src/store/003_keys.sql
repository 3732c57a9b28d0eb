-- Nodes of this program that have a key: by it they change the password of the device of their own name.
CREATE TABLE nodes_keys (
  node    TEXT PRIMARY KEY,
  key     BLOB NOT NULL,
  changes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- One-time tokens with which they give it: a digest of each.
CREATE TABLE nodes_invitations (
  digest     BLOB PRIMARY KEY,
  node       TEXT NOT NULL,
  until      INTEGER NOT NULL,
  created_by TEXT NOT NULL
) STRICT, WITHOUT ROWID;
