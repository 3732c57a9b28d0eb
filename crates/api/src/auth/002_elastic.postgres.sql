-- Resource managers, by their keys: several of one may be good at once.
CREATE TABLE api_elastic_keys (
    seq          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id           text NOT NULL UNIQUE,
    manager      text NOT NULL,
    public_key   bytea NOT NULL,
    name         text NOT NULL,
    created_at   bigint NOT NULL,
    revoked_at   bigint,
    last_used_at bigint
) WITH (fillfactor = 80);
CREATE INDEX api_elastic_keys_by_manager ON api_elastic_keys (manager);

CREATE TABLE api_elastic_enrolments (
    token_hash bytea PRIMARY KEY,
    expires_at bigint NOT NULL,
    used_at    bigint
);

-- A one-time token may be made for a worker whose id was given out before it exists.
ALTER TABLE api_enrolments ADD COLUMN worker text;
CREATE INDEX api_enrolments_by_worker ON api_enrolments (worker) WHERE worker IS NOT NULL;
