-- What the manager keeps for the resource manager. Every change that one makes is fenced by the lease of group 'elastic'.

-- Of each queue that is or was elastic: what was decided, as JSON.
CREATE TABLE fleet_queues (
  queue      text PRIMARY KEY,
  state      text NOT NULL,
  decision   text NOT NULL,
  trouble    text,
  decided_at bigint NOT NULL
);

-- Workers that a provider has, or is about to have.
CREATE TABLE fleet_members (
  worker text PRIMARY KEY,
  queue  text NOT NULL,
  life   text NOT NULL,
  since  bigint NOT NULL,
  node   text
);

-- What was asked for under a name, so that asking again gives the same.
CREATE TABLE fleet_requests (
  generation bigint NOT NULL,
  request    text NOT NULL,
  queue      text NOT NULL,
  workers    text NOT NULL,
  PRIMARY KEY (generation, request)
);

-- How many were wanted, over time.
CREATE TABLE fleet_changes (
  seq        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue      text NOT NULL,
  at         bigint NOT NULL,
  from_count bigint NOT NULL,
  to_count   bigint NOT NULL,
  because    text NOT NULL
);
CREATE INDEX fleet_changes_by_queue ON fleet_changes (queue, seq);
CREATE INDEX fleet_changes_by_at ON fleet_changes (at);

-- Nodes as the last offer had them, as JSON, and what people want of them. One that is not offered is kept only while
-- somebody wants something of it.
CREATE TABLE fleet_nodes (
  name       text PRIMARY KEY,
  node       text NOT NULL,
  wish       text NOT NULL DEFAULT 'open',
  offered_at bigint
);

-- The sorts of node that could be had: one row, once there was an offer.
CREATE TABLE fleet_kinds (
  one        bigint PRIMARY KEY CHECK (one = 1),
  kinds      text NOT NULL,
  offered_at bigint NOT NULL
);

-- Workers to whom nothing is handed any more, whoever started them.
CREATE TABLE fleet_draining (
  worker text PRIMARY KEY,
  queue  text NOT NULL,
  since  bigint NOT NULL,
  who    text NOT NULL
);

-- Only ever added to, in the transaction of the change it tells of; old lines are removed.
CREATE TABLE fleet_audit (
  seq    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at     bigint NOT NULL,
  who    text NOT NULL,
  what   text NOT NULL,
  target text NOT NULL
);
CREATE INDEX fleet_audit_by_at ON fleet_audit (at);
