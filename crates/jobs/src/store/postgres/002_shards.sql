-- The shard that a job's queue belongs to. Rows of before have none; those that are open get theirs at the next start.
ALTER TABLE jobs ADD COLUMN shard bigint;
CREATE INDEX jobs_open_by_shard ON jobs (shard, key) WHERE finished_at IS NULL;

-- An attempt's generation is that of its shard's lease from here on, and goes on above those that were given out before.
INSERT INTO shard_leases (group_name, shard, owner, generation, beats, lease_ms)
SELECT 'jobs', shard, NULL, n, 0, 0 FROM generate_series(0, 15) shard, generations WHERE name = 'jobs'
ON CONFLICT DO NOTHING;
