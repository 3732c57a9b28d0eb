-- Who may come in. Secrets are here only as SHA-256 of 256 random bits, which no guessing undoes.
CREATE TABLE api_tokens (
    seq          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id           text NOT NULL UNIQUE,
    name         text NOT NULL,
    role         text NOT NULL,
    namespace    text NOT NULL,
    secret_hash  bytea NOT NULL,
    created_at   bigint NOT NULL,
    expires_at   bigint,
    revoked_at   bigint,
    last_used_at bigint
) WITH (fillfactor = 80);

CREATE TABLE api_workers (
    seq         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id          text NOT NULL UNIQUE,
    public_key  bytea NOT NULL,
    name        text NOT NULL,
    namespace   text NOT NULL,
    queue       text NOT NULL,
    enrolled_at bigint NOT NULL,
    revoked_at  bigint
);

CREATE TABLE api_enrolments (
    token_hash bytea PRIMARY KEY,
    namespace  text NOT NULL,
    queue      text NOT NULL,
    expires_at bigint NOT NULL,
    used_at    bigint
);

-- Only ever added to, in the transaction of the change it tells of.
CREATE TABLE api_audit (
    seq    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     bigint NOT NULL,
    who    text NOT NULL,
    what   text NOT NULL,
    target text NOT NULL
);
