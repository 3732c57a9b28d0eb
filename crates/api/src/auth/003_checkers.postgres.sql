-- The kinds of checks that a checker makes, as http,tcp. Empty of workers, which take tasks of their queue.
ALTER TABLE api_workers ADD COLUMN checks text;
ALTER TABLE api_enrolments ADD COLUMN checks text;
