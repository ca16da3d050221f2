-- uses: store row quarantined_rows
-- Forget jobs whose time is over, with all that belongs to them, slots that were silent for long, and messages that were handled long ago; how many jobs went.

local ids = redis.call('ZRANGEBYSCORE', STORE .. 'keep', '-inf', integer(NOW), 'LIMIT', 0, given.limit)
for _, id in ipairs(ids) do
    local row = read(id)
    if row then
        forget(id, row)
    else
        redis.call('ZREM', STORE .. 'keep', id)
    end
end
local silent = redis.call('ZRANGEBYSCORE', STORE .. 'heartbeats', '-inf', integer(NOW - given.silent), 'LIMIT', 0, 100)
for _, name in ipairs(silent) do
    redis.call('DEL', STORE .. 'heartbeat:' .. name)
    redis.call('ZREM', STORE .. 'heartbeats', name)
end
local handled = redis.call('ZRANGEBYSCORE', STORE .. 'quarantine_handled', '-inf', integer(NOW - given.keep_handled), 'LIMIT', 0, 100)
for _, number in ipairs(handled) do
    forget_message(number)
end
return #ids
