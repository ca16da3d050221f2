-- Append a row to the audit; one whose token is there already is left as it is.
local function record(row)
    if row.token and redis.call('HEXISTS', STORE .. 'audit_tokens', row.token) == 1 then
        return
    end
    local number = redis.call('HINCRBY', STORE .. 'audit_tokens', 'last', 1)
    row.token = row.token or 'number ' .. number
    row.entry = row.entry or row.token
    row.at = integer(NOW)
    redis.call('HSET', STORE .. 'audit:' .. number, 'row', cjson.encode(row))
    redis.call('HSET', STORE .. 'audit_tokens', row.token, number)
    redis.call('ZADD', STORE .. 'audit', number, number)
    if row.job then
        redis.call('ZADD', STORE .. 'audit_job:' .. row.job, number, number)
    end
end
