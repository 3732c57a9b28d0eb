-- Large byte strings, in chunks. Keys sort by bytes, so that a prefix is a range.
CREATE TABLE blobs (
    id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key text COLLATE "C" NOT NULL UNIQUE,
    len bigint NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- The cascade sees chunks that were added after a removal began; a statement of ours would not.
CREATE TABLE blob_chunks (
    blob bigint NOT NULL REFERENCES blobs (id) ON DELETE CASCADE,
    at   bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (blob, at)
) WITH (autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);
