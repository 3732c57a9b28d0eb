-- Bytes of history that a shard has ever had; and how many of them are older than a parcel, which is not known of those from before
-- this step, nor of those that an older program applies.
ALTER TABLE kv_shards ADD COLUMN written BIGINT NOT NULL DEFAULT 0;
ALTER TABLE kv_parcels ADD COLUMN older BIGINT;
