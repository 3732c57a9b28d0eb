CREATE TABLE shard_groups (
    name   text PRIMARY KEY,
    shards bigint NOT NULL
);

-- Few rows, each written every few seconds for ever: room on the page for the next version, and early cleaning.
CREATE TABLE shard_members (
    group_name text NOT NULL,
    member     text NOT NULL,
    address    text NOT NULL,
    beats      bigint NOT NULL,
    PRIMARY KEY (group_name, member)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- The generation is part of a key so that a fence (FOR KEY SHARE) keeps claims waiting, which change it, and lets
-- renewals pass, which do not.
CREATE TABLE shard_leases (
    group_name text NOT NULL,
    shard      bigint NOT NULL,
    owner      text,
    generation bigint NOT NULL,
    beats      bigint NOT NULL,
    lease_ms   bigint NOT NULL,
    PRIMARY KEY (group_name, shard),
    UNIQUE (group_name, shard, generation)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
