-- uses: store batch
-- Forget rows of a replay that is over, or was left unfinished, for longer than `keep`; how many went.
-- One that nobody goes on with is aborted first.
for _, id in ipairs(redis.call('SMEMBERS', STORE .. 'replays_open')) do
    local row = batch(id)
    if row and (row.state == 'paused' or row.state == 'stopped') and tonumber(row.next_at) < NOW - given.keep then
        redis.call('HSET', STORE .. 'replay:' .. id, 'state', 'aborted', 'ended', integer(NOW), 'why', (row.why or '') .. given.nobody)
        redis.call('SREM', STORE .. 'replays_open', id)
    end
end
for _, id in ipairs(redis.call('ZRANGE', STORE .. 'replays', 0, 99)) do
    local row = batch(id)
    local since = row and (row.ended or (row.state == 'building' and row.created))
    if since and tonumber(since) < NOW - given.keep then
        local gone = 0
        for _, state in ipairs(ITEMS) do
            local index = STORE .. 'replay_state:' .. id .. ':' .. state
            local jobs = redis.call('ZRANGE', index, 0, given.limit - gone - 1)
            for _, job in ipairs(jobs) do
                redis.call('HDEL', STORE .. 'replay_jobs:' .. id, job)
                redis.call('ZREM', index, job)
            end
            gone = gone + #jobs
            if gone == given.limit then
                return gone
            end
        end
        if gone > 0 then
            return gone
        end
        redis.call('DEL', STORE .. 'replay:' .. id, STORE .. 'replay_counts:' .. id)
        redis.call('ZREM', STORE .. 'replays', id)
        redis.call('SREM', STORE .. 'replays_open', id)
        return 1
    end
end
return 0
