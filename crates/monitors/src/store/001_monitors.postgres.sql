-- Monitors as people define them, as JSON. A revision is the number of the change, over all monitors. One that was removed
-- stays for a while, so that whoever follows the revisions hears of it.
CREATE TABLE monitors (
  key        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  uuid       text NOT NULL UNIQUE,
  namespace  text NOT NULL,
  name       text NOT NULL,
  shard      bigint NOT NULL,
  definition text NOT NULL,
  revision   bigint NOT NULL,
  owner      text NOT NULL,
  created_at bigint NOT NULL,
  changed_at bigint NOT NULL,
  changed_by text NOT NULL,
  removed_at bigint
);
CREATE UNIQUE INDEX monitors_by_name ON monitors (namespace, name) WHERE removed_at IS NULL;
CREATE INDEX monitors_by_revision ON monitors (revision);
CREATE INDEX monitors_by_shard ON monitors (shard) WHERE removed_at IS NULL;
CREATE TABLE monitor_revisions (one integer PRIMARY KEY CHECK (one = 1), n bigint NOT NULL);
INSERT INTO monitor_revisions (one, n) VALUES (1, 0);

-- What was changed, by whom: one row for each change, written with it.
CREATE TABLE monitor_changes (
  revision   bigint PRIMARY KEY,
  at         bigint NOT NULL,
  who        text NOT NULL,
  what       text NOT NULL,
  monitor    bigint NOT NULL,
  definition text
);

-- Up to where the instants of a shard have been fired.
CREATE TABLE monitor_rounds (shard bigint PRIMARY KEY, fired_until bigint NOT NULL);

-- What is believed of each, as JSON.
CREATE TABLE monitor_health (monitor bigint PRIMARY KEY, health text NOT NULL);

-- One outcome an instant, whoever says it and however often.
CREATE TABLE monitor_outcomes (
  monitor bigint NOT NULL,
  at      bigint NOT NULL,
  verdict bigint NOT NULL,
  took_us bigint,
  detail  text,
  PRIMARY KEY (monitor, at)
);
CREATE INDEX monitor_outcomes_by_age ON monitor_outcomes (at);

CREATE TABLE monitor_incidents (
  monitor   bigint NOT NULL,
  opened_at bigint NOT NULL,
  since     bigint NOT NULL,
  closed_at bigint,
  evidence  text NOT NULL,
  PRIMARY KEY (monitor, opened_at)
);

-- They grow by the million and shrink by the day.
ALTER TABLE monitor_outcomes SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE monitor_health SET (fillfactor = 50);
