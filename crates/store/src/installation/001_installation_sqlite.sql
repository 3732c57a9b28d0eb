-- One row at most, made by the first manager that needs it. `markings`: how often a RabbitMQ was marked as this
-- installation's.
CREATE TABLE installation (
  one      INTEGER PRIMARY KEY CHECK (one = 1),
  id       TEXT NOT NULL,
  markings INTEGER NOT NULL DEFAULT 0
) STRICT;
