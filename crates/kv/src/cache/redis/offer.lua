-- KEYS: the shard's word, the slots. ARGV: epoch; then for each slot of which it is known what it is now: its place among the
-- slots from 0, the packed entry, how long it is kept (ms).
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
for first = 2, #KEYS, 1000 do
  redis.call('HDEL', KEYS[1], unpack(KEYS, first, math.min(first + 999, #KEYS)))
end
for n = 2, #ARGV, 3 do
  local key, entry, kept = KEYS[ARGV[n] + 2], ARGV[n + 1], ARGV[n + 2]
  local slot = redis.call('GET', key)
  local there = slot and string.sub(slot, 1, 17) == 'E' .. ARGV[1] and string.sub(slot, 18, 37)
  if not there or there < string.sub(entry, 1, 20) then
    redis.call('SET', key, 'E' .. ARGV[1] .. entry, 'PX', kept)
  end
end
return 1
