-- Where tasks are that a node has had for a while: whoever owns the run next asks for them there.
CREATE TABLE flow_noted (
  run        INTEGER NOT NULL,
  step       INTEGER NOT NULL,
  item       INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  n          INTEGER NOT NULL,
  node       TEXT NOT NULL,
  PRIMARY KEY (run, step, item)
) WITHOUT ROWID;
