-- Answers to clients of the wire that nobody listened for. The oldest go past a bound.
CREATE TABLE nodes_answers (
  seq   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at    bigint NOT NULL,
  bytes bigint NOT NULL,
  text  text NOT NULL
);
