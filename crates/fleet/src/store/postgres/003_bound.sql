-- What a worker was given of its node, as JSON; whatever its queue's definition says by now.
ALTER TABLE fleet_members ADD COLUMN need text;

-- Workers whose identities are still to be revoked: written with what decides it, removed when it is done.
CREATE TABLE fleet_revocations (
  worker text PRIMARY KEY,
  at     bigint NOT NULL
);

-- Which resource manager goes by which name in the lease. The first to use a name has it.
CREATE TABLE fleet_names (
  member  text PRIMARY KEY,
  manager text NOT NULL
);
