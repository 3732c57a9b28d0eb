CREATE TABLE generations (
    name text PRIMARY KEY,
    n    bigint NOT NULL
);

-- Counters change with every settlement. Half of each page is left free, so that the new version of a row lands beside
-- the old one (a heap-only update: no index is touched) and the page cleans itself.
CREATE TABLE jobs (
    key          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace    text NOT NULL,
    owner        text NOT NULL,
    queue        text NOT NULL,
    name         text,
    labels       text NOT NULL,
    spec         text NOT NULL,
    kind         smallint NOT NULL,
    first        bigint NOT NULL,
    total        bigint NOT NULL,
    trace        text NOT NULL,
    created_at   bigint NOT NULL,
    ok           bigint NOT NULL DEFAULT 0,
    failed       bigint NOT NULL DEFAULT 0,
    timed_out    bigint NOT NULL DEFAULT 0,
    cancelled    bigint NOT NULL DEFAULT 0,
    lost         bigint NOT NULL DEFAULT 0,
    dead         bigint NOT NULL DEFAULT 0,
    -- Set when the whole job was cancelled: its tasks without a final row are cancelled, without a row each.
    cancelled_at bigint,
    finished_at  bigint,
    idempotency  text,
    digest       bytea
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
CREATE UNIQUE INDEX jobs_idempotency ON jobs (namespace, owner, idempotency) WHERE idempotency IS NOT NULL;
CREATE INDEX jobs_open ON jobs (key) WHERE finished_at IS NULL;
CREATE INDEX jobs_finished ON jobs (finished_at) WHERE finished_at IS NOT NULL;

-- The entries or commands of a job, packed, by the offset of the first task. Compressed already.
CREATE TABLE segments (
    job   bigint NOT NULL,
    first bigint NOT NULL,
    body  bytea NOT NULL,
    PRIMARY KEY (job, first)
);
ALTER TABLE segments ALTER COLUMN body SET STORAGE EXTERNAL;

-- Only tasks that were tried in vain (state 0) or that ended (the codes of `Final`). Grows by the million and shrinks by
-- the job, so vacuum goes by small shares: a fifth of a hundred million rows would be far too late.
CREATE TABLE tasks (
    job           bigint NOT NULL,
    idx           bigint NOT NULL,
    state         smallint NOT NULL,
    generation    bigint,
    n             integer,
    failures      integer NOT NULL,
    losses        integer NOT NULL,
    not_before    bigint,
    worker        text,
    exit          integer,
    signal        integer,
    reason        text,
    started_at    bigint,
    ended_at      bigint,
    wall_us       bigint,
    cpu_user_us   bigint,
    cpu_system_us bigint,
    memory_peak   bigint,
    PRIMARY KEY (job, idx)
) WITH (fillfactor = 95, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05,
        autovacuum_analyze_scale_factor = 0.02);

-- What the deciding attempt wrote, as far as its outcome carried it.
CREATE TABLE outputs (
    job        bigint NOT NULL,
    idx        bigint NOT NULL,
    stream     smallint NOT NULL,
    generation bigint NOT NULL,
    n          integer NOT NULL,
    bytes      bigint NOT NULL,
    truncated  boolean NOT NULL,
    in_blobs   boolean NOT NULL,
    tail       bytea NOT NULL,
    PRIMARY KEY (job, idx, stream)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05,
        toast.autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE sessions (
    session text PRIMARY KEY,
    worker  text NOT NULL,
    queue   text NOT NULL
);
