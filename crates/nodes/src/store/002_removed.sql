-- Nodes and devices that somebody took out: whichever manager did not hear of it finds it here, and nobody writes down anew
-- what was known of a node before.
CREATE TABLE nodes_removed (
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  at   INTEGER NOT NULL,
  PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX nodes_removed_by_at ON nodes_removed (at);
