-- What the outcomes of a minute, an hour or a day come to. `times` is a sketch of how long they took.
CREATE TABLE monitor_rolls (
  step       bigint NOT NULL,
  monitor    bigint NOT NULL,
  at         bigint NOT NULL,
  good       bigint NOT NULL,
  bad        bigint NOT NULL,
  excused    bigint NOT NULL,
  longest_us bigint NOT NULL,
  times      bytea NOT NULL,
  PRIMARY KEY (step, monitor, at)
);
CREATE INDEX monitor_rolls_by_age ON monitor_rolls (step, at);

-- Up to where each step has been added up.
CREATE TABLE monitor_rolled (step bigint PRIMARY KEY, until bigint NOT NULL);
