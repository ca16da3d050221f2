-- uses: store tally row quarantined_rows record
-- Forget jobs whose time is over, with all that belongs to them, slots that were silent for long, and messages that were handled long ago; how many jobs went.

local ids = redis.call('ZRANGEBYSCORE', STORE .. 'keep', '-inf', integer(NOW), 'LIMIT', 0, given.limit)
-- Dead letters that go, by task and tenant: the audit says how many.
local letters = {}
for _, id in ipairs(ids) do
    local row = read(id)
    if row then
        forget(id, row)
        if row.state == 'dead' then
            local whose = cjson.encode({ row.task, row.tenant or false })
            letters[whose] = (letters[whose] or 0) + 1
        end
    else
        redis.call('ZREM', STORE .. 'keep', id)
    end
end
for whose, number in pairs(letters) do
    local task, tenant = unpack(cjson.decode(whose))
    record({ outcome = 'done', actor = 'retention', role = '', origin = 'sweep', action = 'dlq.expire',
        target = 'dead letters task=' .. task, tenant = tenant or nil, reason = 'their time was over', detail = number .. ' deleted' })
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
