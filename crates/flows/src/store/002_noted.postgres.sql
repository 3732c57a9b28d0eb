-- Where tasks are that a node has had for a while: whoever owns the run next asks for them there.
CREATE TABLE flow_noted (
  run        bigint NOT NULL,
  step       bigint NOT NULL,
  item       bigint NOT NULL,
  generation bigint NOT NULL,
  n          bigint NOT NULL,
  node       text NOT NULL,
  PRIMARY KEY (run, step, item)
);
