-- Tokens of monitors that wait to be called, as digests, and what was said by whoever called last.
CREATE TABLE monitor_pushes (
  monitor   INTEGER PRIMARY KEY,
  token     BLOB NOT NULL UNIQUE,
  called_at INTEGER,
  verdict   INTEGER,
  took_us   INTEGER,
  message   TEXT
) STRICT;
