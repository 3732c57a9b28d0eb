-- Queues as people define them, as JSON. A revision is the number of the change, over all queues.
CREATE TABLE queues (
    name       text PRIMARY KEY,
    definition text NOT NULL,
    revision   bigint NOT NULL,
    created_at bigint NOT NULL,
    changed_at bigint NOT NULL,
    changed_by text NOT NULL
);
CREATE INDEX queues_by_revision ON queues (revision);
INSERT INTO generations (name, n) VALUES ('queues', 1) ON CONFLICT DO NOTHING;

-- Until now a queue was there when somebody used it: those in use go on.
INSERT INTO queues (name, definition, revision, created_at, changed_at, changed_by)
SELECT name, '{"name":"' || name || '"}', 1, at, at, 'upgrade'
FROM (SELECT 'default' AS name UNION SELECT queue FROM jobs WHERE finished_at IS NULL UNION SELECT queue FROM sessions) q,
     (SELECT (extract(epoch FROM now()) * 1000)::bigint AS at) t;

-- What was changed, by whom: one row for each change, written with it.
CREATE TABLE queue_changes (
    revision   bigint PRIMARY KEY,
    at         bigint NOT NULL,
    who        text NOT NULL,
    what       text NOT NULL,
    queue      text NOT NULL,
    definition text
);

ALTER TABLE jobs ADD COLUMN priority integer NOT NULL DEFAULT 0;
CREATE INDEX jobs_open_by_queue ON jobs (queue, key) WHERE finished_at IS NULL;
