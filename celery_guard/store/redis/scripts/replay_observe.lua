-- uses: store tally row batch
-- Note what became of jobs that were sent again: (counts of the wave, how many died of their cause again, how many wait, and are on their way).
local ENDS = { succeeded = 'succeeded', dead = 'failed' }

-- What a job that was sent again came to, and in which words; nil while it was not tried yet.
local function what_became(row, item)
    if not row then
        return 'ended', 'it was forgotten'
    end
    if count(row.replays) ~= item.replays then
        return 'ended', 'somebody else replayed it'
    end
    if row.state == 'dead' then
        return 'failed', row.cause == item.cause and given.same or nil
    end
    if ENDS[row.state] or ENDED[row.state] or row.state == 'unknown' then
        return ENDS[row.state] or 'ended', not ENDS[row.state] and 'it is ' .. row.state or nil
    end
    return count(row.retries) > 0 and 'failing' or nil
end

-- Of more than one look takes, the next look goes on behind this one: those that wait for a retry must not hide who comes behind them.
local function looked_at(state)
    local index, place = STORE .. 'replay_state:' .. given.id .. ':' .. state, 'looked_' .. state
    local many = redis.call('ZCARD', index)
    if many <= given.limit then
        return redis.call('ZRANGE', index, 0, -1)
    end
    local from = tonumber(redis.call('HGET', STORE .. 'replay:' .. given.id, place) or 0)
    from = from < many and from or 0
    redis.call('HSET', STORE .. 'replay:' .. given.id, place, from + given.limit)
    return redis.call('ZRANGE', index, from, from + given.limit - 1)
end

for _, state in ipairs({ 'released', 'failing' }) do
    for _, job in ipairs(looked_at(state)) do
        local item = place_of(given.id, job)
        local to, why = what_became(read(job), item)
        if to and to ~= state then
            item.why = why
            became(given.id, job, item, to)
            if why and why == given.same then
                add(given.id, 'same', string.format('%d', item.wave), 1)
            end
        end
    end
end
local same = 0
for wave = given.run, given.wave do
    same = same + tonumber(redis.call('HGET', STORE .. 'replay_counts:' .. given.id, wave .. ':same') or 0)
end
local function many(state)
    return redis.call('ZCARD', STORE .. 'replay_state:' .. given.id .. ':' .. state)
end
return { counts(given.id, string.format('%d', given.wave)), same, many('waiting'), many('released') + many('failing') }
