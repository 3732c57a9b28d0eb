-- Nodes and devices that somebody took out: whichever manager did not hear of it finds it here, and nobody writes down anew
-- what was known of a node before.
CREATE TABLE nodes_removed (
  kind text NOT NULL,
  name text NOT NULL,
  at   bigint NOT NULL,
  PRIMARY KEY (kind, name)
);
CREATE INDEX nodes_removed_by_at ON nodes_removed (at);
