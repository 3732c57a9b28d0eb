-- Resource managers, by their keys: several of one may be good at once.
CREATE TABLE api_elastic_keys (
    seq          INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    manager      TEXT NOT NULL,
    public_key   BLOB NOT NULL,
    name         TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    revoked_at   INTEGER,
    last_used_at INTEGER
) STRICT;
CREATE INDEX api_elastic_keys_by_manager ON api_elastic_keys (manager);

CREATE TABLE api_elastic_enrolments (
    token_hash BLOB PRIMARY KEY,
    expires_at INTEGER NOT NULL,
    used_at    INTEGER
) STRICT, WITHOUT ROWID;

-- A one-time token may be made for a worker whose id was given out before it exists.
ALTER TABLE api_enrolments ADD COLUMN worker TEXT;
CREATE INDEX api_enrolments_by_worker ON api_enrolments (worker) WHERE worker IS NOT NULL;
