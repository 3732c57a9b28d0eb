-- KEYS: the shard's word, the slots. ARGV: epoch; for each slot the packed entry (empty: not known), how long it is kept (ms).
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
for n = 2, #KEYS do
  redis.call('HDEL', KEYS[1], KEYS[n])
  local entry, kept = ARGV[2 * n - 2], ARGV[2 * n - 1]
  if entry ~= '' then
    local slot = redis.call('GET', KEYS[n])
    local there = slot and string.sub(slot, 1, 17) == 'E' .. ARGV[1] and string.sub(slot, 18, 37)
    if not there or there < string.sub(entry, 1, 20) then
      redis.call('SET', KEYS[n], 'E' .. ARGV[1] .. entry, 'PX', kept)
    end
  end
end
return 1
