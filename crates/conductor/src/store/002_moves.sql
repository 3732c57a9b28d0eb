-- Replicas that are on their way to another host while they run. Until somebody has begun it `boot` and `epoch` are nought;
-- from then on both hosts run it, until the other has caught up.
CREATE TABLE stream_moves (
  stream  TEXT NOT NULL,
  kind    TEXT NOT NULL,
  n       INTEGER NOT NULL,
  replica INTEGER NOT NULL,
  host    TEXT NOT NULL,
  boot    INTEGER NOT NULL DEFAULT 0,
  epoch   INTEGER NOT NULL DEFAULT 0,
  who     TEXT NOT NULL,
  why     TEXT NOT NULL,
  since   INTEGER NOT NULL,
  PRIMARY KEY (stream, kind, n, replica)
) WITHOUT ROWID;
CREATE INDEX stream_moves_by_host ON stream_moves (host, boot);
