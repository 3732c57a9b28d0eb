-- KEYS: the shard's word. ARGV: epoch, until when it counts (ms since 1970).
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
local until_ms = tonumber(ARGV[2])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
-- One that is late takes nothing away from a later one.
if until_ms > now + redis.call('PTTL', KEYS[1]) then redis.call('PEXPIREAT', KEYS[1], ARGV[2]) end
return 1
