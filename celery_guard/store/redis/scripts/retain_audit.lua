-- uses: store
-- Forget rows of the audit that are older than `keep`, the oldest first; how many went.
local gone = 0
for _, number in ipairs(redis.call('ZRANGE', STORE .. 'audit', 0, given.limit - 1)) do
    local text = redis.call('HGET', STORE .. 'audit:' .. number, 'row')
    -- of one that was evicted only its number is left
    local row = text and cjson.decode(text)
    if row and tonumber(row.at) >= NOW - given.keep then
        break
    end
    redis.call('DEL', STORE .. 'audit:' .. number)
    redis.call('ZREM', STORE .. 'audit', number)
    if row then
        redis.call('HDEL', STORE .. 'audit_tokens', row.token)
    end
    if row and row.job then
        redis.call('ZREM', STORE .. 'audit_job:' .. row.job, number)
    end
    gone = gone + 1
end
return gone
