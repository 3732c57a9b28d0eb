-- One row a shard: its last revision, and up to which its history was removed.
CREATE TABLE kv_shards (
    shard     BIGINT PRIMARY KEY,
    revision  BIGINT NOT NULL,
    compacted BIGINT NOT NULL DEFAULT 0
);
-- Every key as it is. Deleted ones stay for a while, without a value.
CREATE TABLE kv_entries (
    namespace    TEXT    NOT NULL,
    key          TEXT COLLATE "C" NOT NULL,
    shard        BIGINT NOT NULL,
    revision     BIGINT NOT NULL,
    changed_at   BIGINT NOT NULL,
    value        BYTEA,
    content_type TEXT,
    expires_at   BIGINT
);
CREATE UNIQUE INDEX kv_entries_by_key ON kv_entries (namespace, key);
CREATE INDEX kv_entries_expiring ON kv_entries (shard, expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX kv_entries_deleted ON kv_entries (shard, revision) WHERE value IS NULL;
-- What each revision did.
CREATE TABLE kv_history (
    shard        BIGINT NOT NULL,
    revision     BIGINT NOT NULL,
    namespace    TEXT    NOT NULL,
    key          TEXT COLLATE "C" NOT NULL,
    kind         BIGINT NOT NULL,
    at           BIGINT NOT NULL,
    value        BYTEA,
    content_type TEXT,
    expires_at   BIGINT
);
CREATE UNIQUE INDEX kv_history_by_revision ON kv_history (shard, revision);
CREATE INDEX kv_history_by_key ON kv_history (namespace, key, revision);
-- Parcels of writes that were applied: the last of each sender keeps it from being applied again, and all of them say which
-- revision a write has.
CREATE TABLE kv_parcels (
    shard    BIGINT NOT NULL,
    producer BIGINT NOT NULL,
    number   BIGINT NOT NULL,
    first    BIGINT NOT NULL,
    writes   BIGINT NOT NULL,
    at       BIGINT NOT NULL,
    PRIMARY KEY (shard, producer, number)
);
