-- Since when a node has it; 0 where that was not written down.
ALTER TABLE flow_noted ADD COLUMN since bigint NOT NULL DEFAULT 0;
