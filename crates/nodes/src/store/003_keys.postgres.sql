-- Nodes of this program that have a key: by it they change the password of the device of their own name.
CREATE TABLE nodes_keys (
  node    text PRIMARY KEY,
  key     bytea NOT NULL,
  changes bigint NOT NULL
);

-- One-time tokens with which they give it: a digest of each.
CREATE TABLE nodes_invitations (
  digest     bytea PRIMARY KEY,
  node       text NOT NULL,
  until      bigint NOT NULL,
  created_by text NOT NULL
);
