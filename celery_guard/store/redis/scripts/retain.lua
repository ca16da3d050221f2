-- uses: store row
-- Forget jobs whose time is over, with all that belongs to them, and slots that were silent for a day; how many jobs went.
local SILENT = 86400 * 1000000

local ids = redis.call('ZRANGEBYSCORE', STORE .. 'keep', '-inf', integer(NOW), 'LIMIT', 0, given.limit)
for _, id in ipairs(ids) do
    local row = read(id)
    if row then
        forget(id, row)
    else
        redis.call('ZREM', STORE .. 'keep', id)
    end
end
local silent = redis.call('ZRANGEBYSCORE', STORE .. 'heartbeats', '-inf', integer(NOW - SILENT), 'LIMIT', 0, 100)
for _, name in ipairs(silent) do
    redis.call('DEL', STORE .. 'heartbeat:' .. name)
    redis.call('ZREM', STORE .. 'heartbeats', name)
end
return #ids
