-- What goes with the history: parcels by the revisions that they took.
CREATE INDEX kv_parcels_by_revision ON kv_parcels (shard, first) WHERE number > 0;
-- Who has introduced itself. Of such a row (number 0) `first` is when it began, `writes` the shard's revision then, and `at`
-- when it was last heard to live.
CREATE INDEX kv_parcels_senders ON kv_parcels (shard, producer) WHERE number = 0;
