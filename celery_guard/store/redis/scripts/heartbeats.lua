-- uses: store
-- Who has said that it is alive: (now, then name and fields of each).
local found = { integer(NOW) }
for _, name in ipairs(redis.call('ZRANGE', STORE .. 'heartbeats', 0, -1)) do
    found[#found + 1] = { name, redis.call('HMGET', STORE .. 'heartbeat:' .. name, 'token', 'beat', 'until', 'detail') }
end
return found
