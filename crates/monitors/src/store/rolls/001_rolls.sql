-- What the outcomes of a minute, an hour or a day come to. `times` is a sketch of how long they took.
CREATE TABLE monitor_rolls (
  step       INTEGER NOT NULL,
  monitor    INTEGER NOT NULL,
  at         INTEGER NOT NULL,
  good       INTEGER NOT NULL,
  bad        INTEGER NOT NULL,
  excused    INTEGER NOT NULL,
  longest_us INTEGER NOT NULL,
  times      BLOB NOT NULL,
  PRIMARY KEY (step, monitor, at)
) STRICT, WITHOUT ROWID;
CREATE INDEX monitor_rolls_by_age ON monitor_rolls (step, at);

-- Up to where each step has been added up.
CREATE TABLE monitor_rolled (step INTEGER PRIMARY KEY, until INTEGER NOT NULL) STRICT;
