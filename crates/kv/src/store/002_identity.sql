-- One row: a number that tells this installation from others that use the same Redis.
CREATE TABLE kv_identity (
    one INTEGER PRIMARY KEY,
    id  BIGINT  NOT NULL
);
