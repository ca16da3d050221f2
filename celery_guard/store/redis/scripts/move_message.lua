-- uses: store
-- Note what a person does about a message in quarantine; 0 unless its state is the one that was seen.
local slot = STORE .. 'quarantine:' .. integer(given.number)
local seen = redis.call('HMGET', slot, 'received', 'state', 'moved')
if not seen[1] then
    return 0
end
if seen[3] == given.mark then
    -- an earlier try of this very call has written it
    return 1
end
if (seen[2] or 'kept') ~= given.was then
    return 0
end
redis.call('HSET', slot, 'state', given.state, 'why', given.why, 'moved', given.mark)
if given.handled then
    redis.call('HSET', slot, 'handled', integer(NOW))
    redis.call('ZREM', STORE .. 'quarantine_kept', integer(given.number))
    redis.call('ZADD', STORE .. 'quarantine_handled', NOW, integer(given.number))
else
    redis.call('HDEL', slot, 'handled')
    redis.call('ZREM', STORE .. 'quarantine_handled', integer(given.number))
    redis.call('ZADD', STORE .. 'quarantine_kept', given.number, integer(given.number))
end
return 1
