-- uses: store
-- Write a replay without a job in it; one that is there already is left as it is.
if redis.call('EXISTS', STORE .. 'replay:' .. given.id) == 0 then
    local flat = { 'state', 'building', 'created', integer(NOW), 'next_at', integer(NOW), 'total', '0', 'wave', '1', 'run', '1' }
    for name, value in pairs(given.words) do
        flat[#flat + 1] = name
        flat[#flat + 1] = type(value) == 'number' and integer(value) or value
    end
    redis.call('HSET', STORE .. 'replay:' .. given.id, unpack(flat))
    redis.call('ZADD', STORE .. 'replays', NOW, given.id)
    redis.call('SADD', STORE .. 'replays_open', given.id)
end
