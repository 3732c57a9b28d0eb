-- Where alerts go, as JSON. Secrets are in it: whoever reads this table can use them.
CREATE TABLE monitor_channels (
  namespace  text NOT NULL,
  name       text NOT NULL,
  definition text NOT NULL,
  changed_at bigint NOT NULL,
  changed_by text NOT NULL,
  PRIMARY KEY (namespace, name)
);

-- Alerts, written with what they are about. The event alone decides the key, so each is raised once.
CREATE TABLE monitor_alerts (
  key       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  shard     bigint NOT NULL,
  monitor   bigint NOT NULL,
  about     bigint NOT NULL,
  event     text NOT NULL,
  turn      bigint NOT NULL,
  channel   text NOT NULL,
  raised_at bigint NOT NULL,
  detail    text,
  next_at   bigint NOT NULL,
  first_at  bigint,
  tries     bigint NOT NULL DEFAULT 0,
  ended     text,
  ended_at  bigint,
  note      text,
  UNIQUE (monitor, about, event, turn, channel)
);
CREATE INDEX monitor_alerts_due ON monitor_alerts (shard, next_at) WHERE ended IS NULL;
CREATE INDEX monitor_alerts_in_order ON monitor_alerts (monitor, channel, key) WHERE ended IS NULL;
CREATE INDEX monitor_alerts_by_age ON monitor_alerts (ended_at) WHERE ended IS NOT NULL;

-- What people said about a monitor: be quiet, I know.
CREATE TABLE monitor_attention (monitor bigint PRIMARY KEY, attention text NOT NULL);
