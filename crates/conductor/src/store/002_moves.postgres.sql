-- Replicas that are on their way to another host while they run. Until somebody has begun it `boot` and `epoch` are nought;
-- from then on both hosts run it, until the other has caught up.
CREATE TABLE stream_moves (
  stream  text NOT NULL,
  kind    text NOT NULL,
  n       bigint NOT NULL,
  replica bigint NOT NULL,
  host    text NOT NULL,
  boot    bigint NOT NULL DEFAULT 0,
  epoch   bigint NOT NULL DEFAULT 0,
  who     text NOT NULL,
  why     text NOT NULL,
  since   bigint NOT NULL,
  PRIMARY KEY (stream, kind, n, replica)
);
CREATE INDEX stream_moves_by_host ON stream_moves (host, boot);
