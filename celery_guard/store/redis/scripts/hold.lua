-- uses: store
-- Take or keep a named slot; 0 while another token holds it alive.
local slot = STORE .. 'heartbeat:' .. given.name
local seen = redis.call('HMGET', slot, 'token', 'until')
if seen[1] and seen[1] ~= given.token and tonumber(seen[2]) > NOW then
    return 0
end
redis.call('HSET', slot, 'token', given.token, 'beat', integer(NOW), 'until', integer(NOW + given.ttl),
    'detail', given.detail)
redis.call('ZADD', STORE .. 'heartbeats', NOW + given.ttl, given.name)
return 1
