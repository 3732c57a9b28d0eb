-- Each installation begins to count its jobs at a place of its own: an id that is typed at the wrong one is then not found,
-- rather than found to be another job. Below 2^33, so that ids stay short for 2^34 jobs and more. One that has had a job
-- goes on where it is.
INSERT INTO sqlite_sequence (name, seq)
SELECT 'jobs', abs(random() % 8589934592)
WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'jobs');
