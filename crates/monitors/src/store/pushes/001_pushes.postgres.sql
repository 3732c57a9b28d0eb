-- Tokens of monitors that wait to be called, as digests, and what was said by whoever called last.
CREATE TABLE monitor_pushes (
  monitor   bigint PRIMARY KEY,
  token     bytea NOT NULL UNIQUE,
  called_at bigint,
  verdict   bigint,
  took_us   bigint,
  message   text
) WITH (fillfactor = 50);
