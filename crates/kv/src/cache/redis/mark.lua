-- KEYS: the shard's word, the slots. ARGV: epoch. What changes is kept with the word: neither goes without the other.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
for n = 2, #KEYS do
  redis.call('HSET', KEYS[1], KEYS[n], 1)
  redis.call('DEL', KEYS[n])
end
return 1
