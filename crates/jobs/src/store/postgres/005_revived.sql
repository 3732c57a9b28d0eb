-- Tasks of a job that were tried anew by hand, so that its owner finds those that nobody told it of.
ALTER TABLE jobs ADD COLUMN revived bigint NOT NULL DEFAULT 0;
CREATE INDEX jobs_revived ON jobs (shard, key) WHERE revived > 0 AND finished_at IS NULL;
