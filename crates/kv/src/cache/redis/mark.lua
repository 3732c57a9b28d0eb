-- KEYS: the shard's word, the slots. ARGV: epoch. What changes is kept with the word: neither goes without the other.
-- Says of which slots something was kept, counted from 0. A thousand at a time: no call takes as many as one likes.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return false end
local kept = {}
for first = 2, #KEYS, 1000 do
  local last = math.min(first + 999, #KEYS)
  local changing = {}
  for n = first, last do
    changing[#changing + 1] = KEYS[n]
    changing[#changing + 1] = 1
  end
  redis.call('HSET', KEYS[1], unpack(changing))
  -- Nobody reads most of what is written.
  if redis.call('EXISTS', unpack(KEYS, first, last)) > 0 then
    for n = first, last do
      if redis.call('DEL', KEYS[n]) == 1 then kept[#kept + 1] = n - 2 end
    end
  end
end
return kept
