-- What wrk asks. KIND is put, hit or miss; PUTS, after how many it says that it is enough; TOKEN is set for ours, whose values are bodies and whose keys are in the path.
-- Keys are never repeated within a put run, so that every answer can be looked up afterwards: the value is the key after a "v".
local threads = 0
function setup(thread)
  thread:set("id", threads)
  first = first or thread
  threads = threads + 1
end

local kind, token, keys = os.getenv("KIND"), os.getenv("TOKEN"), tonumber(os.getenv("KEYS") or "1000")
local enough = tonumber(os.getenv("PUTS"))
n = -1 -- wrk asks once before it begins, to verify the script, and does not send that
marks = {} -- how many were asked by each second of the clock: global, so that they can be looked at in the end

local function ours(method, key, body)
  return wrk.format(method, "/v1/kv/" .. key, { ["authorization"] = "Bearer " .. token }, body)
end

function request()
  n = n + 1
  marks[os.time()] = n
  if n == enough then
    -- It goes on until it is told to end: a thread that stops by itself is waited for all the same.
    io.write("enough\n")
    io.flush()
  end
  if kind == "put" then
    local key = string.format("k%d-%d", id, n)
    if token then return ours("PUT", key, "v" .. key) end
    local body = string.format('{"key":"%s","value":"v%s"}', key, key)
    return wrk.format("PUT", "/api", { ["content-type"] = "application/json" }, body)
  end
  local key = kind == "hit" and string.format("k0-%d", n % keys + 1) or string.format("absent%d-%d", id, n)
  if token then return ours("GET", key) end
  return wrk.format("GET", "/api?key=" .. key)
end

-- Keys up to this one were asked for so long before the end that the slowest was answered: whichever is not there was refused or lost.
local function settled(thread, longest_us)
  local last, marks = 0, thread:get("marks")
  local now, before = os.time(), math.ceil(longest_us / 1e6) + 2
  for second, n in pairs(marks) do
    if second <= now - before and n > last then last = n end
  end
  return last
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\n{"requests":%d,"us":%d,"refused":%d,"broken":%d,"p50_us":%d,"p99_us":%d,"p999_us":%d,"max_us":%d,"settled":%d}\n',
    summary.requests, summary.duration, errors.status, errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9), latency.max, settled(first, latency.max)))
end
