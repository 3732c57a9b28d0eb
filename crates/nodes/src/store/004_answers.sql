-- Answers to clients of the wire that nobody listened for. The oldest go past a bound.
CREATE TABLE nodes_answers (
  seq   INTEGER PRIMARY KEY AUTOINCREMENT,
  at    INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  text  TEXT NOT NULL
) STRICT;
