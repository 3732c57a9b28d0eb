-- Who may come in. Secrets are here only as SHA-256 of 256 random bits, which no guessing undoes.
CREATE TABLE api_tokens (
    seq          INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    name         TEXT NOT NULL,
    role         TEXT NOT NULL,
    namespace    TEXT NOT NULL,
    secret_hash  BLOB NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    revoked_at   INTEGER,
    last_used_at INTEGER
) STRICT;

CREATE TABLE api_workers (
    seq         INTEGER PRIMARY KEY,
    id          TEXT NOT NULL UNIQUE,
    public_key  BLOB NOT NULL,
    name        TEXT NOT NULL,
    namespace   TEXT NOT NULL,
    queue       TEXT NOT NULL,
    enrolled_at INTEGER NOT NULL,
    revoked_at  INTEGER
) STRICT;

CREATE TABLE api_enrolments (
    token_hash BLOB PRIMARY KEY,
    namespace  TEXT NOT NULL,
    queue      TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    used_at    INTEGER
) STRICT, WITHOUT ROWID;

-- Only ever added to, in the transaction of the change it tells of.
CREATE TABLE api_audit (
    seq    INTEGER PRIMARY KEY,
    at     INTEGER NOT NULL,
    who    TEXT NOT NULL,
    what   TEXT NOT NULL,
    target TEXT NOT NULL
) STRICT;
