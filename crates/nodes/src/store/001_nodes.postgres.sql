-- Nodes that run actions, as they registered: the record as JSON. One that comes back after days is the same node.
CREATE TABLE nodes_known (
  node    text PRIMARY KEY,
  last_at bigint NOT NULL,
  record  text NOT NULL
);

-- Devices that show a user's name and a password: of the password only a digest.
CREATE TABLE devices (
  name        text PRIMARY KEY,
  node        text NOT NULL,
  digest      bytea NOT NULL,
  may_request boolean NOT NULL,
  created_at  bigint NOT NULL,
  created_by  text NOT NULL
);

-- What was received and could not be worked with. The oldest go past a bound.
CREATE TABLE nodes_rubbish (
  seq    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at     bigint NOT NULL,
  place  text NOT NULL,
  who    text NOT NULL,
  reason text NOT NULL,
  body   bytea NOT NULL
);

-- Who let a device in, or kept it out.
CREATE TABLE nodes_audit (
  seq  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at   bigint NOT NULL,
  who  text NOT NULL,
  what text NOT NULL,
  whom text NOT NULL
);
CREATE INDEX nodes_audit_by_at ON nodes_audit (at);
