-- KEYS: the shard's word. ARGV: epoch, until when it counts (ms since 1970), and how far ahead that may be (ms).
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
local until_ms, ahead_max = tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
-- This clock was set back, or is slow: the word would count for longer than whoever gave it knows.
if until_ms > now + ahead_max then
  redis.call('DEL', KEYS[1])
  return 0
end
-- One that is late takes nothing away from a later one.
if until_ms > now + redis.call('PTTL', KEYS[1]) then redis.call('PEXPIREAT', KEYS[1], ARGV[2]) end
return 1
