-- uses: store batch
-- Change the state of a replay, if it is one of `was` and this is its wave; or go on to the next wave.
local found = batch(given.id)
if not found then
    return 0
end
local index = STORE .. 'replay:' .. given.id
if found.moved == given.mark then
    -- an earlier try of this very call has done it
    return 1
end
if given.wave and found.wave ~= given.wave then
    return 0
end
local fits = false
for _, state in ipairs(given.was) do
    fits = fits or found.state == state
end
if not fits then
    return 0
end
redis.call('HSET', index, 'moved', given.mark)
if not given.to then
    redis.call('HINCRBY', index, 'wave', 1)
    return 1
end
redis.call('HSET', index, 'state', given.to, 'why', given.why)
if given.to == 'running' then
    redis.call('HDEL', index, 'ended')
    redis.call('HSET', index, 'next_at', integer(NOW))
    if found.state ~= 'building' then
        local wave = redis.call('HINCRBY', index, 'wave', 1)
        redis.call('HSET', index, 'run', wave)
    end
elseif given.to == 'aborted' or given.to == 'done' then
    redis.call('HSET', index, 'ended', integer(NOW))
    redis.call('SREM', STORE .. 'replays_open', given.id)
else
    -- it takes no turns; from here on it stands still
    redis.call('HSET', index, 'next_at', integer(NOW))
end
return 1
