-- KEYS: the shard's word. ARGV: generation, epoch, until when it counts (ms since 1970).
local there = redis.call('HMGET', KEYS[1], 'generation', 'begun')
local generation, until_ms = tonumber(ARGV[1]), tonumber(ARGV[3])
if there[1] then
  local other, begun = tonumber(there[1]), tonumber(there[2])
  if other > generation or (other == generation and begun > until_ms) then return 0 end
end
-- First, since one that is full refuses it only while nothing was written: where nothing can be marked no word may be given.
redis.call('HSET', KEYS[1], 'generation', ARGV[1])
redis.call('DEL', KEYS[1])
-- Of what is not there it says nothing: whoever may not say until when, must not say that it counts.
redis.call('PEXPIREAT', KEYS[1], ARGV[3])
redis.call('HSET', KEYS[1], 'generation', ARGV[1], 'epoch', ARGV[2], 'begun', ARGV[3])
redis.call('PEXPIREAT', KEYS[1], ARGV[3])
return 1
