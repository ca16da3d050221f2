-- uses: store tally row
-- Jobs of one state that somebody has to look at, longest waiting first: (now, then id, row, overtaken of each).
local index = STORE .. 'due:' .. given.state
local found = { integer(NOW) }
for _, id in ipairs(redis.call('ZRANGEBYSCORE', index, '-inf', integer(NOW), 'LIMIT', 0, given.limit)) do
    local row = read(id)
    if not row then
        -- what is left of a job that is gone
        redis.call('ZREM', index, id)
    else
        local overtaken = 0
        if row.state == 'sent' then
            -- A job that was published later to the same queue is running, so this one's message should have been met.
            local latest = redis.call('ZREVRANGE', STORE .. 'running:' .. row.queue, 0, 0, 'WITHSCORES')
            if latest[2] and tonumber(latest[2]) > tonumber(row.sent) + given.margin then
                overtaken = 1
            end
        end
        found[#found + 1] = { id, answer(row), overtaken }
    end
end
return found
