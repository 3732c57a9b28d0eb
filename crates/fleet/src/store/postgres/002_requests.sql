-- When something was asked for, so that old requests of a long generation can be forgotten.
ALTER TABLE fleet_requests ADD COLUMN at bigint NOT NULL DEFAULT 0;
