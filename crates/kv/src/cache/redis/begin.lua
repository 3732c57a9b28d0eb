-- KEYS: the shard's word. ARGV: generation, epoch, until when it counts (ms since 1970), and how far ahead that may be (ms).
local generation, until_ms, ahead_max = tonumber(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
-- It is late, or by a clock that was not this one.
if until_ms <= now or until_ms > now + ahead_max then return 0 end
local there = redis.call('HMGET', KEYS[1], 'generation', 'begun')
if there[1] then
  local other, begun = tonumber(there[1]), tonumber(there[2])
  -- One that counts for longer than any may was given before this clock was set back: it says nothing of what is later.
  local is_later = other == generation and begun > until_ms and redis.call('PTTL', KEYS[1]) <= ahead_max
  if other > generation or is_later then return 0 end
end
-- First, since one that is full refuses it only while nothing was written: where nothing can be marked no word may be given.
redis.call('HSET', KEYS[1], 'generation', ARGV[1])
redis.call('DEL', KEYS[1])
-- Of what is not there it says nothing: whoever may not say until when, must not say that it counts.
redis.call('PEXPIREAT', KEYS[1], ARGV[3])
redis.call('HSET', KEYS[1], 'generation', ARGV[1], 'epoch', ARGV[2], 'begun', ARGV[3])
redis.call('PEXPIREAT', KEYS[1], ARGV[3])
return 1
