-- Where alerts go, as JSON. Secrets are in it: whoever reads this table can use them.
CREATE TABLE monitor_channels (
  namespace  TEXT NOT NULL,
  name       TEXT NOT NULL,
  definition TEXT NOT NULL,
  changed_at INTEGER NOT NULL,
  changed_by TEXT NOT NULL,
  PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;

-- Alerts, written with what they are about. The event alone decides the key, so each is raised once.
CREATE TABLE monitor_alerts (
  key       INTEGER PRIMARY KEY AUTOINCREMENT,
  shard     INTEGER NOT NULL,
  monitor   INTEGER NOT NULL,
  about     INTEGER NOT NULL,
  event     TEXT NOT NULL,
  turn      INTEGER NOT NULL,
  channel   TEXT NOT NULL,
  raised_at INTEGER NOT NULL,
  detail    TEXT,
  next_at   INTEGER NOT NULL,
  first_at  INTEGER,
  tries     INTEGER NOT NULL DEFAULT 0,
  ended     TEXT,
  ended_at  INTEGER,
  note      TEXT,
  UNIQUE (monitor, about, event, turn, channel)
) STRICT;
CREATE INDEX monitor_alerts_due ON monitor_alerts (shard, next_at) WHERE ended IS NULL;
CREATE INDEX monitor_alerts_in_order ON monitor_alerts (monitor, channel, key) WHERE ended IS NULL;
CREATE INDEX monitor_alerts_by_age ON monitor_alerts (ended_at) WHERE ended IS NOT NULL;

-- What people said about a monitor: be quiet, I know.
CREATE TABLE monitor_attention (monitor INTEGER PRIMARY KEY, attention TEXT NOT NULL) STRICT;
