-- Who spent a one-time token: asked again by the same key, the answer is the same.
ALTER TABLE api_enrolments ADD COLUMN used_by text;
ALTER TABLE api_elastic_enrolments ADD COLUMN used_by text;

-- Signed requests that changed something, for as long as their time can be in the window: good once, whoever is asked.
CREATE TABLE api_nonces (
    mark bytea PRIMARY KEY,
    at   bigint NOT NULL
);
CREATE INDEX api_nonces_by_at ON api_nonces (at);

-- For what is forgotten by age, and for whoever follows revocations.
CREATE INDEX api_audit_by_at ON api_audit (at);
CREATE INDEX api_workers_by_revoked_at ON api_workers (revoked_at) WHERE revoked_at IS NOT NULL;
