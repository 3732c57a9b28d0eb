-- One row at most, made by the first manager that needs it. `markings`: how often a RabbitMQ was marked as this
-- installation's; managers that start at once agree by it who does.
CREATE TABLE installation (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    id       text NOT NULL,
    markings bigint NOT NULL DEFAULT 0
);
