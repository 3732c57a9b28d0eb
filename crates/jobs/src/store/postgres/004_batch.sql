-- Tasks that ended badly, for those who look for them over all jobs.
CREATE INDEX tasks_dead ON tasks (job DESC, idx) WHERE state IN (2, 3, 5, 6);

-- A key that only one open job of a namespace has.
ALTER TABLE jobs ADD COLUMN unique_key text;
CREATE UNIQUE INDEX jobs_unique ON jobs (namespace, unique_key) WHERE unique_key IS NOT NULL AND finished_at IS NULL;

-- A job that waits for others to end has its shard here, and none there: it is on nobody's desk, also not on that of a
-- manager of before.
ALTER TABLE jobs ADD COLUMN held bigint;
CREATE INDEX jobs_held ON jobs (held, key) WHERE held IS NOT NULL AND finished_at IS NULL;
-- How: 1 until it has ended, 2 until it has ended ok.
CREATE TABLE job_waits (
    job    bigint NOT NULL,
    waited bigint NOT NULL,
    how    smallint NOT NULL,
    PRIMARY KEY (job, waited)
);
-- Why a job was cancelled, when nobody did it by hand.
ALTER TABLE jobs ADD COLUMN reason text;
