-- uses: store
-- Give a slot back, if it is still this token's.
local slot = STORE .. 'heartbeat:' .. given.name
if redis.call('HGET', slot, 'token') == given.token then
    redis.call('DEL', slot)
    redis.call('ZREM', STORE .. 'heartbeats', given.name)
end
return 1
