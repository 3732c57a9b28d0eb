-- KEYS: the shard's word, the slot. ARGV: a token, how long its lease lasts (ms).
-- Says the packed entry, or 1: the token is the lease, or 0: nothing to be had.
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if not epoch or redis.call('HEXISTS', KEYS[1], KEYS[2]) == 1 then return 0 end
local slot = redis.call('GET', KEYS[2])
if slot and string.sub(slot, 2, 17) == epoch then
  if string.sub(slot, 1, 1) == 'E' then return string.sub(slot, 18) end
  return 0
end
redis.call('SET', KEYS[2], 'L' .. epoch .. ARGV[1], 'PX', ARGV[2])
return 1
