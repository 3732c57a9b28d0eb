CREATE TABLE shard_groups (
  name   TEXT PRIMARY KEY,
  shards INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE shard_members (
  group_name TEXT NOT NULL,
  member     TEXT NOT NULL,
  address    TEXT NOT NULL,
  beats      INTEGER NOT NULL,
  PRIMARY KEY (group_name, member)
) STRICT, WITHOUT ROWID;

CREATE TABLE shard_leases (
  group_name TEXT NOT NULL,
  shard      INTEGER NOT NULL,
  owner      TEXT,
  generation INTEGER NOT NULL,
  beats      INTEGER NOT NULL,
  lease_ms   INTEGER NOT NULL,
  PRIMARY KEY (group_name, shard)
) STRICT, WITHOUT ROWID;
