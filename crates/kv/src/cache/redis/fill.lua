-- KEYS: the shard's word, the slot. ARGV: the token of the lease, the packed entry, how long it is kept (ms).
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if not epoch or redis.call('GET', KEYS[2]) ~= 'L' .. epoch .. ARGV[1] then return 0 end
redis.call('SET', KEYS[2], 'E' .. epoch .. ARGV[2], 'PX', ARGV[3])
return 1
