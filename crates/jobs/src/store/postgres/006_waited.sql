-- Who waits for a job, for those who would forget it.
CREATE INDEX job_waits_waited ON job_waits (waited, job);
