-- uses: store
-- Forget rows of the audit that are older than `keep`, the oldest first; how many went.
local gone = 0
for _, number in ipairs(redis.call('ZRANGE', STORE .. 'audit', 0, given.limit - 1)) do
    local row = cjson.decode(redis.call('HGET', STORE .. 'audit:' .. number, 'row'))
    if tonumber(row.at) >= NOW - given.keep then
        break
    end
    redis.call('DEL', STORE .. 'audit:' .. number)
    redis.call('HDEL', STORE .. 'audit_tokens', row.token)
    redis.call('ZREM', STORE .. 'audit', number)
    if row.job then
        redis.call('ZREM', STORE .. 'audit_job:' .. row.job, number)
    end
    gone = gone + 1
end
return gone
