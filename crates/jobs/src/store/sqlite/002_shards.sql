-- The shard that a job's queue belongs to. Rows of before have none; those that are open get theirs at the next start.
ALTER TABLE jobs ADD COLUMN shard INTEGER;
CREATE INDEX jobs_open_by_shard ON jobs (shard, key) WHERE finished_at IS NULL;

-- An attempt's generation is that of its shard's lease from here on, and goes on above those that were given out before.
INSERT OR IGNORE INTO shard_leases (group_name, shard, owner, generation, beats, lease_ms)
WITH RECURSIVE shards (shard) AS (SELECT 0 UNION ALL SELECT shard + 1 FROM shards WHERE shard < 15)
SELECT 'jobs', shard, NULL, n, 0, 0 FROM shards, generations WHERE name = 'jobs';
